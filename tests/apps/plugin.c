/* SPDX-License-Identifier: MIT */
/*
 * Has nothing to do with libibverbs, but opens a plugin that has:
 *
 *     plugin LIBRARY local	RTLD_LOCAL: RTLD_NEXT finds no function of libibverbs
 *     plugin LIBRARY global	RTLD_GLOBAL, closed and opened again
 *     plugin LIBRARY deepbind	RTLD_DEEPBIND: the plugin's own libraries come before any preloaded
 * one plugin LIBRARY twice	RTLD_LOCAL, closed and opened again
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int run(const char *file, int flags)
{
	void *library = dlopen(file, RTLD_NOW | flags);
	void (*plugin_run)(void) = library ? (void (*)(void))dlsym(library, "plugin_run") : NULL;

	if (!plugin_run) {
		printf("Bail out! %s\n", dlerror());
		return 1;
	}
	plugin_run();
	return dlclose(library);
}

int main(int argc, char **argv)
{
	const char *how = argc > 2 ? argv[2] : "";

	if (argc < 3)
		return 2;
	if (!strcmp(how, "deepbind"))
		return run(argv[1], RTLD_LOCAL | RTLD_DEEPBIND);
	if (!strcmp(how, "global"))
		return run(argv[1], RTLD_GLOBAL) || run(argv[1], RTLD_GLOBAL);
	if (!strcmp(how, "twice") && run(argv[1], RTLD_LOCAL))
		return 1;
	return run(argv[1], RTLD_LOCAL);
}
