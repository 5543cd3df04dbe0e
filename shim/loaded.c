/* SPDX-License-Identifier: MIT */
/*
 * Reads the loader's list of objects and their symbol tables: see loaded.h. No lock keeps the list
 * from changing meanwhile; but what was loaded at the start stays, new objects are put at the end,
 * and with glibc 2.34 libc, which was there at the start, ends every search.
 */
#include "loaded.h"

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma weak _r_debug /* in the loader, which the library is not linked with */
extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden")));

/* What a search needs of one object. */
struct symbols {
	uintptr_t base;
	const ElfW(Sym) * table;
	const char *strings;
	const uint32_t *gnu_hash; /* or NULL, and then this: */
	const uint32_t *hash;
	const char *soname; /* "": none */
};

UNSANITIZED static bool same_text(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

/* The loader adds the base to these addresses where it may write to them: not in the vdso. */
UNSANITIZED static const void *place(const struct link_map *l, ElfW(Addr) address)
{
	return (const void *)(address < l->l_addr ? address + l->l_addr : address);
}

UNSANITIZED static struct symbols symbols_of(const struct link_map *l)
{
	struct symbols s = { .base = l->l_addr, .soname = "" };
	ElfW(Xword) soname = 0;

	for (const ElfW(Dyn) *d = l->l_ld; d && d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_SYMTAB)
			s.table = place(l, d->d_un.d_ptr);
		else if (d->d_tag == DT_STRTAB)
			s.strings = place(l, d->d_un.d_ptr);
		else if (d->d_tag == DT_GNU_HASH)
			s.gnu_hash = place(l, d->d_un.d_ptr);
		else if (d->d_tag == DT_HASH)
			s.hash = place(l, d->d_un.d_ptr);
		else if (d->d_tag == DT_SONAME)
			soname = d->d_un.d_val;
	}
	if (soname && s.strings)
		s.soname = s.strings + soname;
	return s;
}

UNSANITIZED static void *function_at(const struct symbols *s, uint32_t index, const char *name)
{
	const ElfW(Sym) *symbol = &s->table[index];
	unsigned int type = ELF64_ST_TYPE(symbol->st_info);

	if (symbol->st_shndx == SHN_UNDEF || !symbol->st_value ||
	    (type != STT_FUNC && type != STT_NOTYPE) ||
	    !same_text(s->strings + symbol->st_name, name))
		return NULL;
	return (void *)(s->base + symbol->st_value);
}

/* DT_GNU_HASH: buckets, index of the first symbol, words and shift of a filter; the filter, the
 * buckets, and for each symbol its hash, whose lowest bit ends a bucket. */
UNSANITIZED static void *find_by_gnu_hash(const struct symbols *s, const char *name)
{
	const uint32_t buckets = s->gnu_hash[0], first = s->gnu_hash[1], words = s->gnu_hash[2];
	const uint32_t *bucket = s->gnu_hash + 4 + words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
	const uint32_t *hashes = bucket + buckets;
	uint32_t hash = 5381, index;
	void *found;

	for (const char *p = name; *p; p++)
		hash = hash * 33 + (unsigned char)*p;
	index = buckets ? bucket[hash % buckets] : 0;
	if (index < first)
		return NULL;
	for (;; index++) {
		if ((hashes[index - first] | 1) == (hash | 1)) {
			found = function_at(s, index, name);
			if (found)
				return found;
		}
		if (hashes[index - first] & 1)
			return NULL;
	}
}

/* DT_HASH: its second word is the number of symbols. */
UNSANITIZED static void *find_one_by_one(const struct symbols *s, const char *name)
{
	for (uint32_t i = 1; i < s->hash[1]; i++) {
		void *found = function_at(s, i, name);

		if (found)
			return found;
	}
	return NULL;
}

UNSANITIZED static void *find_in(const struct symbols *s, const char *name)
{
	if (!s->table || !s->strings)
		return NULL;
	if (s->gnu_hash)
		return find_by_gnu_hash(s, name);
	return s->hash ? find_one_by_one(s, name) : NULL;
}

UNSANITIZED static void *find_after_us(const char *name, bool in_libc)
{
	const struct link_map *l = &_r_debug ? _r_debug.r_map : NULL;

	while (l && l->l_ld != _DYNAMIC)
		l = l->l_next;
	for (l = l ? l->l_next : NULL; l; l = l->l_next) {
		struct symbols s = symbols_of(l);
		void *found;

		if (in_libc && !same_text(s.soname, "libc.so.6") &&
		    !same_text(s.soname, "libdl.so.2"))
			continue;
		found = find_in(&s, name);
		if (found)
			return found;
	}
	return NULL;
}

UNSANITIZED void *loaded_next(const char *name)
{
	return find_after_us(name, false);
}

UNSANITIZED void *loaded_in_libc(const char *name)
{
	return find_after_us(name, true);
}
