/* SPDX-License-Identifier: MIT */
/*
 * Reaches libibverbs by a handle alone, as NCCL does: it is not linked with it.
 *
 *     byhandle dlsym	  traffic by what dlsym finds
 *     byhandle dlvsym	  the same by dlvsym and the versions
 *     byhandle lookups	  tells what each kind of lookup gives, and what it leaves for dlerror()
 *     byhandle ours LIBRARY NAME...	looks each name up in LIBRARY and tells whose function came
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ways.h"

static void *library;
static bool by_version;

static void *find(const char *name, const char *version)
{
	void *found = by_version ? dlvsym(library, name, version) : dlsym(library, name);

	if (!found) {
		printf("Bail out! %s: %s\n", name, dlerror());
		exit(1);
	}
	return found;
}

static void traffic(void)
{
	const char *v = "IBVERBS_1.1";
	struct calls call = {
		.get_device_list = find("ibv_get_device_list", v),
		.free_device_list = find("ibv_free_device_list", v),
		.get_device_name = find("ibv_get_device_name", v),
		.open_device = find("ibv_open_device", v),
		.close_device = find("ibv_close_device", v),
		.query_gid = find("ibv_query_gid", v),
		.alloc_pd = find("ibv_alloc_pd", v),
		.dealloc_pd = find("ibv_dealloc_pd", v),
		.reg_mr = find("ibv_reg_mr", v),
		.reg_mr_iova2 = find("ibv_reg_mr_iova2", "IBVERBS_1.8"),
		.dereg_mr = find("ibv_dereg_mr", v),
		.create_cq = find("ibv_create_cq", v),
		.destroy_cq = find("ibv_destroy_cq", v),
		.create_srq = find("ibv_create_srq", v),
		.destroy_srq = find("ibv_destroy_srq", v),
		.create_qp = find("ibv_create_qp", v),
		.modify_qp = find("ibv_modify_qp", v),
		.destroy_qp = find("ibv_destroy_qp", v),
	};

	printf("result dlerror %s\n", dlerror() ? "set" : "clear");
	ways_traffic(&call, 10);
}

/* The base name of the object that the function lies in. */
static const char *owner(void *found)
{
	Dl_info where;
	const char *slash;

	if (!found || !dladdr(found, &where))
		return "none";
	slash = strrchr(where.dli_fname, '/');
	return slash ? slash + 1 : where.dli_fname;
}

static void tell(const char *what, void *found)
{
	const char *error = dlerror();

	printf("lookup %s: %s, dlerror %s\n", what, owner(found), error ? error : "clear");
}

static void lookups(void)
{
	void *self = dlopen(NULL, RTLD_LAZY), *libm = dlopen("libm.so.6", RTLD_LAZY);

	tell("create_qp", dlsym(library, "ibv_create_qp"));
	tell("create_qp 1.1", dlvsym(library, "ibv_create_qp", "IBVERBS_1.1"));
	tell("create_qp 1.0", dlvsym(library, "ibv_create_qp", "IBVERBS_1.0"));
	tell("create_qp 9.9", dlvsym(library, "ibv_create_qp", "IBVERBS_9.9"));
	tell("reg_mr_iova2 1.8", dlvsym(library, "ibv_reg_mr_iova2", "IBVERBS_1.8"));
	tell("reg_mr_iova2 1.1", dlvsym(library, "ibv_reg_mr_iova2", "IBVERBS_1.1"));
	tell("reg_dmabuf_mr 1.12", dlvsym(library, "ibv_reg_dmabuf_mr", "IBVERBS_1.12"));
	tell("query_device", dlsym(library, "ibv_query_device"));
	tell("no such function", dlsym(library, "ibv_no_such_function"));
	tell("create_qp of libm", dlsym(libm, "ibv_create_qp"));
	tell("cos of libm", dlsym(libm, "cos"));
	tell("nothing of ours, by default", dlsym(RTLD_DEFAULT, "ibv_no_such_function"));
	tell("puts, by default", dlsym(RTLD_DEFAULT, "puts"));
	tell("puts, the next", dlsym(RTLD_NEXT, "puts"));
	tell("puts of the program", dlsym(self, "puts"));
	/* whose own "main" is not next to itself: the caller is the program, whoever passes it on
	 */
	tell("main, the next", dlsym(RTLD_NEXT, "main"));
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	setvbuf(stdout, NULL, _IOLBF, 0);
	library = dlopen(argc > 2 ? argv[2] : "libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		printf("Bail out! %s\n", dlerror());
		return 1;
	}
	by_version = !strcmp(what, "dlvsym");
	if (!strcmp(what, "lookups"))
		lookups();
	else if (!strcmp(what, "ours"))
		for (int i = 3; i < argc; i++)
			printf("%s %s\n", argv[i], owner(dlsym(library, argv[i])));
	else
		traffic();
	return 0;
}
