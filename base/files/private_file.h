/* Opens files that only this user may read and write, in folders to which other users may write,
 * too. In such a folder, another user can put a symbolic link at the path. A plain open(2) would
 * follow the link, and this process, which may have more rights than that user, would overwrite the
 * link's target. These functions prevent that. All of them may be called in a signal handler. */
#ifndef CR_PRIVATE_FILE_H
#define CR_PRIVATE_FILE_H

/* Makes a new file with the mode 0600 and opens it for writing. If there is something at the path,
 * removes it; a link is removed, not its target. Returns a descriptor or a negative errno. */
int cr_private_create(const char *path);

/* Opens a file with `flags` for open(2). If the file is made by this call, it has the mode 0600. A
 * symbolic link is followed only if this user or root has made it. Returns a descriptor; or a
 * negative errno: -EPERM for a link that somebody else has made. */
int cr_private_open(const char *path, int flags);

#endif
