/* SPDX-License-Identifier: MIT */
/*
 * The loaded objects that addresses lie in: path, load address, build-id. dladdr takes the loader's lock, which
 * a constructor may hold while it waits for the calling thread; _dl_find_object (glibc 2.35) takes
 * none, and before that the kernel's own map is read. All else is read from the object's headers in
 * memory, never from its file.
 */
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <linux/futex.h>
#include <string.h>
#include <time.h>

#include "file.h"
#include "guard.h"
#include "modules.h"
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

static struct real real_find_object SOUGHT_EARLY = { .name = "_dl_find_object" };

bool address_is_readable(uintptr_t address)
{
	static const struct timespec at_once = { 0, 0 };
	int saved = errno;
	bool readable;

	/* The kernel reads the word and waits for no time at all, or not even that, if the word is another. */
	readable = !syscall(SYS_futex, address & ~(uintptr_t)3, FUTEX_WAIT_PRIVATE, 0x6d7a3b51,
			    &at_once, NULL, 0) ||
		   errno == EAGAIN || errno == ETIMEDOUT;
	errno = saved;
	return readable;
}

static bool find_by_loader(uintptr_t address, struct loaded *out)
{
	struct found_object found;
	int (*find)(void *, struct found_object *) =
		(int (*)(void *, struct found_object *))atomic_load_explicit(
			&real_find_object.address, memory_order_relaxed);

	if (!find || find((void *)address, &found))
		return false;
	out->start = (uintptr_t)found.map_start;
	out->end = (uintptr_t)found.map_end;
	out->identity = (uintptr_t)found.rest[0]; /* its .eh_frame_hdr */
	out->name = found.link_map->l_name;
	return true;
}

/* --- without it: the map --- */

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

/* Lines of the map that follow each other and name one file are one object, which begins where its offset is 0. */
struct map_walk {
	uintptr_t address;
	struct loaded *out;
	char *name;
	size_t name_size;
	bool hit; /* the object at hand holds the address */
};

/* One line of /proc/self/maps: "start-end perms offset dev inode   path". False when the object is found whole. */
static bool take_line(struct map_walk *w, const char *line)
{
	const char *p = line, *path = strchr(line, '/');
	uintptr_t start = hex(&p), end, offset;
	struct text t;

	if (*p++ != '-')
		return true;
	end = hex(&p);
	if (strlen(p) < 6)
		return true;
	p += 6;
	offset = hex(&p);
	if (!path || (!offset && start != w->out->end) ||
	    strncmp(path, w->name, w->name_size - 1)) {
		if (w->hit)
			return false;
		w->out->start = path && !offset ? start : 0;
		t = text_begin(w->name, w->name_size);
		text_put(&t, path ? path : "");
	}
	if (w->out->start) {
		w->out->end = end;
		w->hit = w->hit || (w->address >= start && w->address < end);
	}
	return true;
}

/* Reads the map in pieces, keeping a cut line for the next. */
static bool find_by_map(uintptr_t address, struct loaded *out, char *name, size_t name_size)
{
	int fd = sys_openat(AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
	struct map_walk w = { address, out, name, name_size, false };
	bool more = fd >= 0;
	char piece[1024];
	size_t kept = 0;
	ssize_t n;

	*out = (struct loaded){ .name = name };
	name[0] = '\0';
	while (more && (n = sys_read(fd, piece + kept, sizeof(piece) - 1 - kept)) > 0) {
		char *line = piece, *end;

		piece[kept + (size_t)n] = '\0';
		while (more && (end = strchr(line, '\n'))) {
			*end = '\0';
			more = take_line(&w, line);
			line = end + 1;
		}
		kept = strlen(line);
		if (kept >= sizeof(piece) - 1)
			kept = 0;
		memmove(piece, line, kept);
	}
	if (fd >= 0)
		sys_close(fd);
	return w.hit;
}

/* The spare name is used by the map alone: the loader has one of its own. */
static bool find_loaded(uintptr_t address, struct loaded *out, char *spare, size_t size)
{
	int saved = errno;
	bool found = find_by_loader(address, out) ||
		     (!real_find_object.address && find_by_map(address, out, spare, size));

	errno = saved;
	return found;
}

bool module_name_of(const void *address, char *buf, size_t size)
{
	struct loaded l;
	struct text t;

	if (!find_loaded((uintptr_t)address, &l, buf, size))
		return false;
	if (l.name != buf) {
		t = text_begin(buf, size);
		text_put(&t, l.name);
	}
	return true;
}

/* --- what its headers say --- */

static bool lies_in(const struct loaded *l, uintptr_t at, size_t bytes)
{
	return at >= l->start && at < l->end && bytes <= l->end - at;
}

/* A note in memory: type NT_GNU_BUILD_ID, owner "GNU". */
static void take_notes(struct module_record *m, const struct loaded *l, uintptr_t at, size_t bytes)
{
	while (bytes >= sizeof(ElfW(Nhdr)) && lies_in(l, at, bytes)) {
		const ElfW(Nhdr) *n = (const ElfW(Nhdr) *)at;
		size_t owner = (n->n_namesz + 3u) & ~(size_t)3,
		       text = (n->n_descsz + 3u) & ~(size_t)3;
		size_t whole = sizeof(*n) + owner + text;

		if (owner > bytes || text > bytes || whole > bytes)
			return;
		if (n->n_type == NT_GNU_BUILD_ID && n->n_namesz == 4 && !memcmp(n + 1, "GNU", 4)) {
			m->build_id_bytes = n->n_descsz > sizeof(m->build_id)
						    ? sizeof(m->build_id)
						    : (uint8_t)n->n_descsz;
			memcpy(m->build_id, (const char *)(n + 1) + owner, m->build_id_bytes);
			return;
		}
		at += whole;
		bytes -= whole;
	}
}

/* The first segment begins with the headers, as every linker lays it out; anything else is left unknown. */
static const ElfW(Phdr) * headers_of(const struct loaded *l, unsigned int *count)
{
	const ElfW(Ehdr) *e = (const ElfW(Ehdr) *)l->start;

	if (l->start % sizeof(uintptr_t) || !lies_in(l, l->start, 4096) ||
	    !address_is_readable(l->start) || memcmp(e->e_ident, ELFMAG, SELFMAG) ||
	    e->e_phentsize != sizeof(ElfW(Phdr)) || e->e_phoff % sizeof(uintptr_t) ||
	    e->e_phoff > 4096 || e->e_phnum > (4096 - e->e_phoff) / sizeof(ElfW(Phdr)))
		return NULL;
	*count = e->e_phnum;
	return (const ElfW(Phdr) *)(l->start + e->e_phoff);
}

static void read_headers(struct module_record *m, struct loaded *l)
{
	unsigned int count = 0;
	const ElfW(Phdr) *p = headers_of(l, &count);

	l->base = l->start;
	for (unsigned int i = 0; i < count; i++)
		if (p[i].p_type == PT_LOAD) {
			l->base = l->start - (p[i].p_vaddr & ~(uintptr_t)4095);
			break;
		}
	m->base = l->base;
	for (unsigned int i = 0; i < count; i++) {
		uintptr_t at = l->base + p[i].p_vaddr;

		if (!lies_in(l, at, p[i].p_memsz))
			continue;
		if (p[i].p_type == PT_GNU_EH_FRAME)
			l->eh_frame = at;
		else if (p[i].p_type == PT_NOTE && !m->build_id_bytes && address_is_readable(at))
			take_notes(m, l, at, p[i].p_filesz);
	}
}

bool module_data_of(const void *address, uintptr_t *from, uintptr_t *to)
{
	struct module_record ignored = { 0 };
	struct loaded l = { 0 };
	unsigned int count = 0;
	const ElfW(Phdr) * p;
	char spare[256];

	if (!find_loaded((uintptr_t)address, &l, spare, sizeof(spare)))
		return false;
	read_headers(&ignored, &l);
	p = headers_of(&l, &count);
	for (unsigned int i = 0; i < count; i++)
		if (p[i].p_type == PT_LOAD && (p[i].p_flags & PF_W) &&
		    lies_in(&l, l.base + p[i].p_vaddr, p[i].p_memsz)) {
			*from = (l.base + p[i].p_vaddr) & ~(uintptr_t)7;
			*to = l.base + p[i].p_vaddr + p[i].p_memsz;
			return true;
		}
	return false;
}

/* --- the records --- */

static uint32_t slot_of(const struct modules *known, const struct loaded *l)
{
	const uint32_t slots = sizeof(known->slot) / sizeof(known->slot[0]);
	uint32_t slot = (uint32_t)lookup_hash(l->start ^ l->identity) % slots;

	for (; known->slot[slot]; slot = (slot + 1) % slots) {
		const struct loaded *k = &known->loaded[known->slot[slot] - 1u];

		if (k->start == l->start && k->end == l->end && k->identity == l->identity)
			break;
	}
	return slot;
}

static uint16_t module_add(struct guard *g, struct loaded *l)
{
	struct module_record *m;
	uint32_t index;
	struct text t;

	m = file_add(g, KIND_MODULE, STATE_MAX_MODULES, &index);
	if (!m)
		return UINT16_MAX;
	read_headers(m, l);
	t = text_begin(m->path, sizeof(m->path));
	text_put(&t, l->name[0] ? l->name : g->header->exe);
	atomic_store_explicit(&m->state, RECORD_LIVE, memory_order_release);
	g->modules.loaded[index] = *l;
	g->modules.loaded[index].name = NULL; /* gone with the object */
	return (uint16_t)index;
}

/* Without the loader's help an object that took the place of another is not told from it. */
static uint16_t known_by_map(const struct guard *g, uintptr_t address)
{
	uint32_t used = atomic_load_explicit(&g->header->used[KIND_MODULE], memory_order_relaxed);

	for (uint32_t i = 0; !real_find_object.address && i < used; i++)
		if (address >= g->modules.loaded[i].start && address < g->modules.loaded[i].end)
			return (uint16_t)i;
	return UINT16_MAX;
}

uint16_t module_index(struct guard *g, uintptr_t address)
{
	uint16_t index = known_by_map(g, address);
	struct loaded l = { 0 };
	uint32_t slot;
	char spare[256];

	if (index != UINT16_MAX || !find_loaded(address, &l, spare, sizeof(spare)))
		return index;
	slot = slot_of(&g->modules, &l);
	if (g->modules.slot[slot])
		return (uint16_t)(g->modules.slot[slot] - 1);
	index = module_add(g, &l);
	if (index != UINT16_MAX)
		g->modules.slot[slot] = (uint16_t)(index + 1);
	return index;
}
