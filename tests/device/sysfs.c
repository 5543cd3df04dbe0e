/* SPDX-License-Identifier: MIT */
/*
 * Being found: libibverbs without netlink reads /sys, or what SYSFS_PATH names.
 * This file makes a small tree with our device and, by symbolic links, the
 * machine's real ones, and sets SYSFS_PATH. The tree is shared by all processes
 * of the user that play a device of the same name, so it does not pile up. It
 * lives in $TMPDIR, else /dev/shm, else /tmp, owned by the user, mode 0700.
 *
 * A file is written beside its place and renamed, and never again once it is
 * there: processes may start at once, and libibverbs takes a changed time stamp
 * of the device's directory for a new device.
 */
#include "mlx5dev.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char root[192];

static void give_up(const char *path)
{
	dprintf(STDERR_FILENO, "mlx5dev: %s: %s\n", path, strerror(errno));
	_exit(2);
}

static void make_dir(const char *path)
{
	struct stat st;

	if (mkdir(path, 0700) && errno != EEXIST)
		give_up(path);
	/* Somebody else's directory of that name in a shared place is not to be trusted. */
	if (lstat(path, &st) || !S_ISDIR(st.st_mode) || st.st_uid != geteuid()) {
		errno = EPERM;
		give_up(path);
	}
}

static void make_dirs(const char *path)
{
	char part[PATH_MAX];

	snprintf(part, sizeof(part), "%s", path);
	for (char *p = part + strlen(root) + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		make_dir(part);
		*p = '/';
	}
}

static void make_file(const char *relative, const char *text)
{
	char path[PATH_MAX], temporary[PATH_MAX];
	size_t len = strlen(text);
	int fd;

	snprintf(path, sizeof(path), "%s/%s", root, relative);
	if (!access(path, F_OK))
		return;
	make_dirs(path);
	/* Not in the device's own directory, whose time stamp must stay. */
	snprintf(temporary, sizeof(temporary), "%s/.%d", root, (int)getpid());
	fd = openat(AT_FDCWD, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, text, len) != (ssize_t)len)
		give_up(temporary);
	syscall(SYS_close, fd);
	if (rename(temporary, path))
		give_up(path);
}

static void make_device(const char *name)
{
	static const struct {
		const char *under, *text;
	} files[] = {
		/* ports first: they settle the directory before "node_type" names it */
		{ "ports/1/gids/0", "fe80:0000:0000:0000:0002:c903:0000:0001\n" },
		{ "ports/1/pkeys/0", "0xffff\n" },
		{ "device/modalias", "pci:v000015B3d00001017sv000015B3sd00000008bc02sc07i00\n" },
		{ "device/vendor", "0x15b3\n" },
		{ "device/device", "0x1017\n" },
		{ "node_guid", "0002:c903:0000:0001\n" },
		{ "sys_image_guid", "0002:c903:0000:0001\n" },
		{ "fw_ver", "16.35.2000\n" },
		{ "board_id", "MT_0000000008\n" },
		{ "hca_type", "MT4119\n" },
		{ "node_type", "1: CA\n" },
	};
	char path[PATH_MAX];

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(path, sizeof(path), "class/infiniband/%s/%s", name, files[i].under);
		make_file(path, files[i].text);
	}
	snprintf(path, sizeof(path), "%s\n", name);
	make_file("class/infiniband_verbs/" UVERBS_NAME "/ibdev", path);
	make_file("class/infiniband_verbs/" UVERBS_NAME "/abi_version", "1\n");
	make_file("class/infiniband_verbs/abi_version", "6\n");
	/* /dev/zero stands in for the device file; see open() in preload.c. */
	make_file("class/infiniband_verbs/" UVERBS_NAME "/dev", "1:5\n");
}

/* Shows the real entries of one class directory, and forgets those that are gone. */
static void link_real(const char *class)
{
	char from[PATH_MAX], to[PATH_MAX];
	struct dirent *d;
	DIR *dir;

	snprintf(from, sizeof(from), "/sys/%s", class);
	dir = opendir(from);
	while (dir && (d = readdir(dir))) {
		if (d->d_name[0] == '.' || !strcmp(d->d_name, "abi_version"))
			continue;
		snprintf(from, sizeof(from), "/sys/%s/%s", class, d->d_name);
		snprintf(to, sizeof(to), "%s/%s/%s", root, class, d->d_name);
		if (symlink(from, to) && errno != EEXIST)
			give_up(to);
	}
	if (dir)
		closedir(dir);

	snprintf(to, sizeof(to), "%s/%s", root, class);
	dir = opendir(to);
	while (dir && (d = readdir(dir))) {
		if (!faccessat(dirfd(dir), d->d_name, F_OK, 0) || errno != ENOENT)
			continue;
		if (unlinkat(dirfd(dir), d->d_name, 0) && errno != ENOENT)
			give_up(to);
	}
	if (dir)
		closedir(dir);
}

void sysfs_publish(void)
{
	const char *base = getenv("TMPDIR");

	if (!base || access(base, W_OK))
		base = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
	snprintf(root, sizeof(root), "%s/mlx5dev-%u-%s", base, (unsigned)geteuid(), limits.name);
	make_dir(root);
	make_device(limits.name);
	link_real("class/infiniband_verbs");
	link_real("class/infiniband");
	setenv("SYSFS_PATH", root, 1);
}
