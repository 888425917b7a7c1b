/* Has a filter at a drive select records of a file, and counts those that come: what a program does that gets only these.
 *
 *     smas-filter PATH RECORD_BYTES BELOW
 *
 * Prints how many records have a first number (32 bits) below BELOW, and in how many seconds they were here; the first byte
 * of each is looked at. The cell is the one that NASD_CELL names. */
#include <smas.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static char records[1 << 20];

static void fail(const char *what)
{
    fprintf(stderr, "smas-filter: %s: %s\n", what, smas_strerror());
    exit(1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int count, char **arguments)
{
    if (count != 4) {
        fprintf(stderr, "usage: smas-filter PATH RECORD_BYTES BELOW\n");
        return 2;
    }
    long record_bytes = strtol(arguments[2], NULL, 10), below = strtol(arguments[3], NULL, 10);
    int fd = smas_open(arguments[1], O_RDONLY);
    if (fd < 0)
        fail("open");
    double begun = now();
    if (smas_recordstruct(fd, UNSIGNED, 4, CHAR, record_bytes - 4) != 0)
        fail("records");
    if (smas_usefilter(fd, SQLSELECT_FILTER, 1, LESS, below) != 0)
        fail("filter");
    unsigned long long selected = 0;
    for (ssize_t bytes; (bytes = smas_nextrecords(fd, records, sizeof records)) > 0;)
        for (const char *at = records; at < records + bytes; at += record_bytes)
            selected += (unsigned char)*at < below;
    if (smas_error(fd) != 0)
        fail("a record");
    printf("%llu selected in %.5f s\n", selected, now() - begun);
    return 0;
}
