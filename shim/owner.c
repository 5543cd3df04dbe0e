/* SPDX-License-Identifier: MIT */
/*
 * What a library of rdma-core makes for itself, told apart from what the application makes: by the object that
 * the call came from. libmlx5's flow steering makes CQs and MRs, librdmacm's rsockets make QPs. Under
 * guard->lock; no verbs call.
 */
#include <string.h>

#include "guard.h"

/* "libmlx5.so.1" and "librxe-rdmav34.so", not "libmlx5tools.so". */
static bool is_library(const char *base, const char *name)
{
	size_t len = strlen(name);

	return !strncmp(base, name, len) && (base[len] == '.' || base[len] == '-');
}

bool made_by_library(struct guard *g, uint16_t caller)
{
	static const char *const libraries[] = { "librdmacm", "libmlx5", "libmlx4",  "libefa",
						 "libmana",   "libhns",	 "libionic", "libibverbs" };
	const char *path = caller_module(g, caller), *slash = strrchr(path, '/');
	const char *base = slash ? slash + 1 : path;

	for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++)
		if (is_library(base, libraries[i]))
			return true;
	return !strncmp(base, "lib", 3) && strstr(base, "-rdmav");
}
