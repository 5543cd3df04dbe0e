/* SPDX-License-Identifier: MIT */
/*
 * Who asks: return addresses and the loaded objects they lie in. dladdr and dl_iterate_phdr take the
 * loader's lock, which a constructor may hold while it waits for the calling thread; _dl_find_object
 * (glibc 2.35) takes none, and before that the kernel's own map is read.
 */
#include <errno.h>
#include <link.h>
#include <string.h>

#include "file.h"
#include "guard.h"
#include "real.h"
#include "sys.h"
#include "../policy/text.h"

/* struct dl_find_object of <dlfcn.h>, with room for what an architecture adds. */
struct found_object {
	unsigned long long flags;
	void *map_start, *map_end;
	struct link_map *link_map;
	unsigned long long rest[12];
};

static struct real real_find_object SOUGHT_EARLY = { "_dl_find_object", NULL, NULL };

static bool module_by_loader(const void *address, char *buf, size_t size, uintptr_t *base)
{
	struct found_object found;
	int (*find)(void *, struct found_object *) =
		(int (*)(void *, struct found_object *))atomic_load_explicit(
			&real_find_object.address, memory_order_relaxed);
	struct text t;

	if (!find || find((void *)(uintptr_t)address, &found))
		return false;
	if (base)
		*base = (uintptr_t)found.link_map->l_addr;
	t = text_begin(buf, size);
	text_put(&t, found.link_map->l_name);
	return true;
}

static uintptr_t hex(const char **p)
{
	uintptr_t n = 0;

	for (;; (*p)++) {
		unsigned char c = (unsigned char)**p;

		if (c >= '0' && c <= '9')
			n = n * 16 + c - '0';
		else if (c >= 'a' && c <= 'f')
			n = n * 16 + c - 'a' + 10;
		else
			return n;
	}
}

/* One line of /proc/self/maps: "start-end perms offset dev inode   path". */
static bool line_holds(const char *line, uintptr_t address, uintptr_t *start, uint64_t *offset,
		       const char **path)
{
	const char *p = line;
	uintptr_t end;

	*start = hex(&p);
	if (*p++ != '-')
		return false;
	end = hex(&p);
	if (address < *start || address >= end || strlen(p) < 6)
		return false;
	p += 6;
	*offset = hex(&p);
	*path = strchr(p, '/');
	return *path != NULL;
}

/* Reads the map in pieces of a page, keeping a cut line for the next. */
static bool module_by_map(const void *address, char *buf, size_t size, uintptr_t *base)
{
	int fd = sys_openat(AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
	char piece[2048];
	size_t kept = 0;
	bool found = false;
	ssize_t n;

	while (fd >= 0 && !found &&
	       (n = sys_read(fd, piece + kept, sizeof(piece) - 1 - kept)) > 0) {
		char *line = piece, *end;

		piece[kept + (size_t)n] = '\0';
		while (!found && (end = strchr(line, '\n'))) {
			const char *path;
			uintptr_t start;
			uint64_t offset;

			*end = '\0';
			if (line_holds(line, (uintptr_t)address, &start, &offset, &path)) {
				struct text t = text_begin(buf, size);

				text_put(&t, path);
				if (base)
					*base = start - offset;
				found = true;
			}
			line = end + 1;
		}
		kept = strlen(line);
		if (kept >= sizeof(piece) - 1)
			kept = 0;
		memmove(piece, line, kept);
	}
	if (fd >= 0)
		sys_close(fd);
	return found;
}

bool module_of_address(const void *address, char *buf, size_t size, uintptr_t *base)
{
	int saved = errno;
	bool found = module_by_loader(address, buf, size, base) ||
		     module_by_map(address, buf, size, base);

	errno = saved;
	return found;
}

static uint32_t module_index(struct guard *g, const char *path, uintptr_t base)
{
	uint32_t used = atomic_load_explicit(&g->header->used[KIND_MODULE], memory_order_relaxed);
	struct module_record *m;
	uint32_t index;
	struct text t;

	for (uint32_t i = 0; i < used; i++) {
		m = file_record(g->file, KIND_MODULE, i);
		if (m->base == base && !strncmp(m->path, path, sizeof(m->path) - 1))
			return i;
	}
	m = file_add(g, KIND_MODULE, STATE_MAX_MODULES, &index);
	if (!m)
		return STATE_NONE;
	m->base = base;
	t = text_begin(m->path, sizeof(m->path));
	text_put(&t, path);
	atomic_store_explicit(&m->state, RECORD_LIVE, memory_order_release);
	return index;
}

static struct caller_record *caller_add(struct guard *g, void *address, uint32_t *index)
{
	struct caller_record *c = file_add(g, KIND_CALLER, STATE_MAX_CALLERS, index);
	uintptr_t base = 0;
	char path[256];

	if (!c)
		return NULL;
	c->module = STATE_NONE;
	c->address = (uintptr_t)address;
	c->offset = (uintptr_t)address;
	if (*index == STATE_MAX_CALLERS - 1)
		c->flags = CALLER_OTHER;
	else if (module_of_address(address, path, sizeof(path), &base)) {
		c->module = module_index(g, path[0] ? path : g->header->exe, base);
		c->offset = (uintptr_t)address - base;
	}
	atomic_store_explicit(&c->state, RECORD_LIVE, memory_order_release);
	return c;
}

uint16_t caller_index(struct guard *g, void *address)
{
	const uint32_t slots = sizeof(g->caller_slot) / sizeof(g->caller_slot[0]);
	uint32_t slot = (uint32_t)lookup_hash((uintptr_t)address) % slots;
	uint32_t index;

	for (; g->caller_slot[slot]; slot = (slot + 1) % slots) {
		const struct caller_record *c =
			file_record(g->file, KIND_CALLER, g->caller_slot[slot] - 1u);

		if (c->address == (uintptr_t)address)
			return (uint16_t)(g->caller_slot[slot] - 1);
	}
	if (!caller_add(g, address, &index))
		return (uint16_t)(g->header->used[KIND_CALLER] ? STATE_MAX_CALLERS - 1 : 0);
	g->caller_slot[slot] = (uint16_t)(index + 1);
	return (uint16_t)index;
}

const char *caller_module(struct guard *g, uint16_t caller)
{
	const struct caller_record *c = file_record(g->file, KIND_CALLER, caller);

	if (c->module == STATE_NONE)
		return "";
	return ((const struct module_record *)file_record(g->file, KIND_MODULE, c->module))->path;
}
