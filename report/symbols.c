/* SPDX-License-Identifier: MIT */
/*
 * Names by elfutils' libdw: see symbols.h. Files are opened when first asked for and kept, names too: a
 * report asks for the same ones again and again.
 */
#include "symbols.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwelf.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 6	    /* that may tell of one module */
#define KNOWN 8192u /* names that are kept */

/* One file that is the module, or tells of it. */
struct teller {
	int fd;
	Elf *elf;
	Dwarf *dwarf; /* NULL: it has no debug information */
};

struct known_module {
	struct known_module *next;
	uint8_t build_id[STATE_BUILD_ID_BYTES];
	uint8_t build_id_bytes;
	char path[sizeof(((struct module_record *)0)->path)];
	unsigned int tellers;
	struct teller teller[FILES];
};

struct known_symbol {
	const struct known_module *module;
	uint64_t offset;
	bool found;
	struct symbol symbol;
};

static struct known_module *modules;
static struct known_symbol *symbols;
static const char *directory;

void symbol_directory(const char *dir)
{
	directory = dir;
}

/* --- files --- */

/* A regular file of somebody who is trusted; -1: none. */
static int open_trusted(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	    (st.st_uid == 0 || st.st_uid == geteuid()))
		return fd;
	close(fd);
	return -1;
}

static bool has_build_id(Elf *elf, const struct known_module *m)
{
	const void *id;
	ssize_t bytes = dwelf_elf_gnu_build_id(elf, &id);

	if (bytes > (ssize_t)sizeof(m->build_id))
		bytes = sizeof(m->build_id);
	return bytes > 0 && bytes == m->build_id_bytes && !memcmp(id, m->build_id, (size_t)bytes);
}

static void add_teller(struct known_module *m, const char *path)
{
	struct teller *t = &m->teller[m->tellers];

	if (m->tellers == FILES || (t->fd = open_trusted(path)) < 0)
		return;
	t->elf = elf_begin(t->fd, ELF_C_READ, NULL);
	if (t->elf && elf_kind(t->elf) == ELF_K_ELF && has_build_id(t->elf, m)) {
		t->dwarf = dwarf_begin_elf(t->elf, DWARF_C_READ, NULL);
		m->tellers++;
		return;
	}
	elf_end(t->elf);
	close(t->fd);
}

static void add_by_build_id(struct known_module *m, const char *dir)
{
	char path[4096], name[2 * STATE_BUILD_ID_BYTES + 1];

	for (unsigned int i = 0; i < m->build_id_bytes; i++)
		snprintf(name + 2 * i, 3, "%02x", m->build_id[i]);
	snprintf(path, sizeof(path), "%s/.build-id/%.2s/%s.debug", dir, name, name + 2);
	add_teller(m, path);
}

static void add_tellers(struct known_module *m, const char *module_path)
{
	const char *slash = strrchr(module_path, '/');
	const char *name = slash ? slash + 1 : module_path;
	char path[4096];

	if (module_path[0] == '/')
		add_teller(m, module_path);
	if (directory) {
		add_by_build_id(m, directory);
		snprintf(path, sizeof(path), "%s/%s", directory, name);
		add_teller(m, path);
		snprintf(path, sizeof(path), "%s/%s.debug", directory, name);
		add_teller(m, path);
	}
	add_by_build_id(m, "/usr/lib/debug");
}

static struct known_module *module_of(const struct module_record *r)
{
	struct known_module *m = modules;

	for (; m; m = m->next)
		if (m->build_id_bytes == r->build_id_bytes &&
		    !memcmp(m->build_id, r->build_id, r->build_id_bytes) &&
		    !strcmp(m->path, r->path))
			return m;
	m = calloc(1, sizeof(*m));
	if (!m || elf_version(EV_CURRENT) == EV_NONE) {
		free(m);
		return NULL;
	}
	m->build_id_bytes = r->build_id_bytes;
	memcpy(m->build_id, r->build_id, r->build_id_bytes);
	snprintf(m->path, sizeof(m->path), "%s", r->path);
	add_tellers(m, m->path);
	m->next = modules;
	modules = m;
	return m;
}

/* --- what they tell --- */

/* The compilation unit of an address; also without .debug_aranges, which clang leaves out. */
static bool find_unit(Dwarf *dwarf, Dwarf_Addr at, Dwarf_Die *out)
{
	Dwarf_Off here = 0, next;
	size_t header;

	if (dwarf_addrdie(dwarf, at, out))
		return true;
	for (; dwarf_nextcu(dwarf, here, &next, &header, NULL, NULL, NULL) == 0; here = next)
		if (dwarf_offdie(dwarf, here + header, out) && dwarf_haspc(out, at) > 0)
			return true;
	return false;
}

/* Put in line from a header of verbs: ibv_create_qp_ex(), ibv_reg_mr(). Who calls those is meant. */
static bool is_of_verbs(Dwarf_Die *scope)
{
	const char *name = dwarf_diename(scope);

	return name && (strncmp(name, "ibv_", 4) == 0 || strncmp(name, "__ibv_", 6) == 0);
}

/* Where a function was put in line. */
static void place_of_call(Dwarf_Die *unit, Dwarf_Die *scope, struct symbol *out)
{
	Dwarf_Attribute attribute;
	Dwarf_Word file = 0, line = 0;
	Dwarf_Files *files;
	size_t n;

	out->file = NULL;
	if (dwarf_formudata(dwarf_attr(scope, DW_AT_call_file, &attribute), &file) == 0 &&
	    dwarf_formudata(dwarf_attr(scope, DW_AT_call_line, &attribute), &line) == 0 &&
	    dwarf_getsrcfiles(unit, &files, &n) == 0 && file < n && line > 0 && line <= INT32_MAX) {
		out->file = dwarf_filesrc(files, (size_t)file, NULL, NULL);
		out->line = (int)line;
	}
}

/* The innermost function, one that was put in line too. */
static void function_at(Dwarf_Die *unit, Dwarf_Addr at, struct symbol *out)
{
	Dwarf_Die *scopes = NULL;
	int n = dwarf_getscopes(unit, at, &scopes);

	for (int i = 0; i < n && !out->function; i++) {
		int tag = dwarf_tag(&scopes[i]);

		if (tag == DW_TAG_inlined_subroutine && is_of_verbs(&scopes[i]))
			place_of_call(unit, &scopes[i], out);
		else if (tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine)
			out->function = dwarf_diename(&scopes[i]);
	}
	free(scopes);
}

static bool ask_dwarf(const struct teller *t, Dwarf_Addr at, struct symbol *out)
{
	Dwarf_Line *line;
	Dwarf_Die unit;

	if (!t->dwarf || !find_unit(t->dwarf, at, &unit))
		return false;
	line = dwarf_getsrc_die(&unit, at);
	if (line && dwarf_lineno(line, &out->line) == 0 && out->line > 0)
		out->file = dwarf_linesrc(line, NULL, NULL);
	function_at(&unit, at, out);
	return out->function && out->file;
}

static void ask_table(Elf *elf, Elf_Scn *section, const GElf_Shdr *header, GElf_Addr at,
		      struct symbol *out)
{
	Elf_Data *data = elf_getdata(section, NULL);
	size_t n = data && header->sh_entsize ? data->d_size / header->sh_entsize : 0;
	GElf_Sym s;

	for (size_t i = 0; i < n && gelf_getsym(data, (int)i, &s); i++) {
		const char *name;

		if (GELF_ST_TYPE(s.st_info) != STT_FUNC || s.st_shndx == SHN_UNDEF ||
		    at < s.st_value || at - s.st_value >= s.st_size)
			continue;
		name = elf_strptr(elf, header->sh_link, s.st_name);
		if (!name || !*name)
			continue;
		out->function = name;
		out->inside = at - s.st_value;
		return;
	}
}

/* The whole table before the exported names, which are all that a stripped file has. */
static bool ask_symbols(const struct teller *t, GElf_Addr at, struct symbol *out)
{
	static const GElf_Word kinds[] = { SHT_SYMTAB, SHT_DYNSYM };

	for (unsigned int k = 0; k < 2 && !out->function; k++) {
		Elf_Scn *section = NULL;
		GElf_Shdr header;

		while (!out->function && (section = elf_nextscn(t->elf, section)))
			if (gelf_getshdr(section, &header) && header.sh_type == kinds[k])
				ask_table(t->elf, section, &header, at, out);
	}
	return out->function != NULL;
}

/* The instruction before a return address is the call. */
static bool ask_all(const struct known_module *m, uint64_t offset, struct symbol *out)
{
	for (unsigned int i = 0; offset && i < m->tellers; i++) {
		*out = (struct symbol){ 0 };
		if (ask_dwarf(&m->teller[i], offset - 1, out))
			return true;
	}
	for (unsigned int i = 0; offset && i < m->tellers; i++) {
		*out = (struct symbol){ 0 };
		if (ask_symbols(&m->teller[i], offset - 1, out)) {
			out->inside++;
			return true;
		}
	}
	return false;
}

/* Where the name is kept, or would be: another's place is taken when it is. NULL: no memory. */
static struct known_symbol *place_of(const struct known_module *m, uint64_t offset)
{
	uint64_t hash = (offset ^ (uintptr_t)m >> 4) * 0x9e3779b97f4a7c15u >> 32;

	if (!symbols)
		symbols = calloc(KNOWN, sizeof(*symbols));
	return symbols ? &symbols[hash % KNOWN] : NULL;
}

bool symbol_find(const struct module_record *module, uint64_t offset, struct symbol *out)
{
	const struct known_module *m;
	struct known_symbol *k;

	*out = (struct symbol){ 0 };
	if (!module->build_id_bytes || module->build_id_bytes > STATE_BUILD_ID_BYTES)
		return false;
	m = module_of(module);
	k = m ? place_of(m, offset) : NULL;
	if (!k)
		return false;
	if (k->module != m || k->offset != offset) {
		*k = (struct known_symbol){ .module = m, .offset = offset };
		k->found = ask_all(m, offset, &k->symbol);
		if (!k->found)
			k->symbol = (struct symbol){ 0 };
	}
	*out = k->symbol;
	return k->found;
}
