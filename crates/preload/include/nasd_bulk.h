/*
 * The bulk service: files of mounts of a cell, and of servers that NASD_BULK_MAP names, read and written past all caches.
 *
 *     nasd_bulk *file = nasd_bulk_open("/mnt/film", O_RDONLY, 0);
 *     for (uint64_t at = 0; (got = nasd_bulk_read(file, buffer, size, at)) > 0; at += got)
 *         process(buffer, got);
 *     nasd_bulk_close(file);
 *
 * Offsets and lengths are in bytes. A call that fails sets errno, and nasd_bulk_error() tells in words why. Calls may be made by
 * any thread, for one file by several at once, but nasd_bulk_close by the last one. After fork() the child must not make any
 * with its parent's files. Link with -lnasd_bulk, which need not be preloaded then; programs that are linked with it, and open
 * files with O_DIRECT by open(2), have those mapped as with LD_PRELOAD.
 */
#ifndef NASD_BULK_H
#define NASD_BULK_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An open file. */
typedef struct nasd_bulk nasd_bulk;

/*
 * Opens a file by a path and the flags of open(2): O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL, O_TRUNC, O_SYNC; mode is that of
 * a file that is made, before the process's mask. NULL: it failed. EOPNOTSUPP: its bytes can't be had by the bulk service, but perhaps by
 * open(2); EBUSY: it is to be written, and others on this machine have it open.
 */
nasd_bulk *nasd_bulk_open(const char *path, int flags, unsigned mode);

/*
 * Reads at an offset: the bytes read, fewer than asked for only at the end of the file, and 0 behind it. Writes at an offset, all of it,
 * and makes the file longer if need be: the bytes written. -1: it failed, and any part may be read or written. EINVAL: offset or length
 * are no multiples of what the server demands. EIO: the server was away for NASD_BULK_TIMEOUT seconds, or 60.
 * At most 2147479552 bytes are transferred, as by read(2).
 */
ssize_t nasd_bulk_read(nasd_bulk *file, void *buffer, size_t count, uint64_t offset);
ssize_t nasd_bulk_write(nasd_bulk *file, const void *buffer, size_t count, uint64_t offset);

/*
 * Begins the same, and does not wait: 0. Any number may be under way, of which 8 are at the server at once; they are done in any
 * order. The buffer is not the program's until nasd_bulk_wait has told the tag. -1: it was not begun.
 */
int nasd_bulk_submit_read(nasd_bulk *file, void *buffer, size_t count, uint64_t offset, uint64_t tag);
int nasd_bulk_submit_write(nasd_bulk *file, const void *buffer, size_t count, uint64_t offset, uint64_t tag);

/*
 * Waits for one that was begun: 1, with its tag, and as its result the bytes, or an error number below zero (-EIO), of which nasd_bulk_error()
 * tells. 0: none is under way. -1: it failed.
 */
int nasd_bulk_wait(nasd_bulk *file, uint64_t *tag, ssize_t *result);

/* Makes durable what was written. -1: it failed; EIO: what was written since the last time may be lost, and has to be written again: until then it
 * is EIO. */
int nasd_bulk_sync(nasd_bulk *file);

/* The length in bytes. -1: it failed. */
int64_t nasd_bulk_size(nasd_bulk *file);

/* Waits for what is under way, and closes the file. It makes nothing durable. -1: it failed; the file is closed all the same. */
int nasd_bulk_close(nasd_bulk *file);

/* What has failed last in this thread, in words; good until the next call that fails in it. */
const char *nasd_bulk_error(void);

#ifdef __cplusplus
}
#endif

#endif
