/* A SPANK plugin that does to a task what pyxis does: gives it another root before Slurm runs its TaskProlog. Of
 * /etc/mingle and /run/mingle it sees what enroot's mounts name, as in a container. VERSION is Slurm's own number. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>

const char plugin_name[] = "pyxis";
const char plugin_type[] = "spank";
const unsigned int plugin_version = VERSION;
const unsigned int spank_plugin_version = 1;

static const char *const places[] = {"/etc/mingle", "/run/mingle"};

int slurm_spank_task_init_privileged(void *spank, int count, char **values)
{
	char kept[2][32], to[2][256];
	int mounts = 0, place;
	struct mntent *entry;
	FILE *file;

	(void) spank, (void) count, (void) values;
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return -1;
	if ((file = setmntent("/etc/enroot/mounts.d/50-mingle.fstab", "r"))) {
		while (mounts < 2 && (entry = getmntent(file))) {
			if ((place = open(entry->mnt_fsname, O_PATH)) < 0)
				continue; /* nofail */
			snprintf(kept[mounts], sizeof kept[mounts], "/proc/self/fd/%d", place);
			snprintf(to[mounts++], sizeof *to, "%s", entry->mnt_dir);
		}
		endmntent(file);
	}
	for (int i = 0; i < 2; i++)
		if (mount("none", places[i], "tmpfs", 0, "mode=0755") && errno != ENOENT)
			return -1;
	for (int i = 0; i < mounts; i++) {
		mkdir(to[i], 0755);
		if (mount(kept[i], to[i], NULL, MS_BIND, NULL))
			return -1;
	}
	return 0;
}
