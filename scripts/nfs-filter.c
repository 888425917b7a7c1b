/* Reads a file of an NFS server with a user-space client and counts the records that a filter would select: what a program
 * does that gets all bytes and looks at them itself.
 *
 *     nfs-filter URL RECORD_BYTES BELOW
 *
 * Prints how many records have a first number (32 bits, least significant byte first) below BELOW, and in how many seconds
 * that was known. Eight requests are on their way at a time. */
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <nfsc/libnfs.h>

enum { AT_A_TIME = 8 };

static struct nfs_context *nfs;
static struct nfsfh *file;
static uint64_t size, next_offset, record_bytes, piece_bytes, selected;
static uint32_t below;
static int under_way;

static void fail(const char *what)
{
    fprintf(stderr, "nfs-filter: %s: %s\n", what, nfs_get_error(nfs));
    exit(1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void begin(void);

static void came(int bytes, struct nfs_context *context, void *data, void *wanted)
{
    (void)context;
    if (bytes < 0 || (uint64_t)bytes != (uintptr_t)wanted)
        fail("a read");
    for (const unsigned char *at = data, *end = at + bytes; at < end; at += record_bytes) {
        uint32_t number = at[0] | at[1] << 8 | at[2] << 16 | (uint32_t)at[3] << 24;
        selected += number < below;
    }
    under_way--;
    begin();
}

static void begin(void)
{
    while (under_way < AT_A_TIME && next_offset < size) {
        uint64_t left = size - next_offset, bytes = left < piece_bytes ? left : piece_bytes;
        if (nfs_pread_async(nfs, file, next_offset, bytes, came, (void *)(uintptr_t)bytes))
            fail("a read");
        next_offset += bytes;
        under_way++;
    }
}

int main(int count, char **arguments)
{
    if (count != 4) {
        fprintf(stderr, "usage: nfs-filter URL RECORD_BYTES BELOW\n");
        return 2;
    }
    nfs = nfs_init_context();
    struct nfs_url *url = nfs_parse_url_full(nfs, arguments[1]);
    if (!url || nfs_mount(nfs, url->server, url->path))
        fail("mount");
    record_bytes = strtoull(arguments[2], NULL, 10);
    below = strtoul(arguments[3], NULL, 10);
    piece_bytes = nfs_get_readmax(nfs) / record_bytes * record_bytes;
    struct nfs_stat_64 told;
    if (nfs_open(nfs, url->file, O_RDONLY, &file) || nfs_fstat64(nfs, file, &told))
        fail("open");
    size = told.nfs_size / record_bytes * record_bytes;
    double begun = now();
    begin();
    while (under_way) {
        struct pollfd ready = {.fd = nfs_get_fd(nfs), .events = nfs_which_events(nfs)};
        if (poll(&ready, 1, 10000) < 0 || nfs_service(nfs, ready.revents) < 0)
            fail("waiting");
    }
    printf("%llu selected in %.5f s\n", (unsigned long long)selected, now() - begun);
    return 0;
}
