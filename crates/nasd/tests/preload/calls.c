/* Every call of nasd_bulk.h: calls FILE NOWHERE */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <nasd_bulk.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            printf("line %d: %s: errno %d, %s\n", __LINE__, #what, errno, nasd_bulk_error()); \
            return 1; \
        } \
    } while (0)

enum { PARTS = 32, PART = 100000 };

static char parts[PARTS][PART], read_back[PARTS][PART];

int main(int count, char **arguments)
{
    nasd_bulk *file;
    uint64_t tag;
    ssize_t result;
    int number, seen[PARTS] = {0};

    CHECK(count == 3);
    file = nasd_bulk_open(arguments[1], O_RDONLY, 0);
    CHECK(file == NULL && errno == ENOENT && strlen(nasd_bulk_error()) > 0);
    CHECK(nasd_bulk_open(NULL, O_RDONLY, 0) == NULL && errno == EFAULT);
    CHECK(nasd_bulk_open(arguments[1], O_RDWR | O_CREAT | O_APPEND, 0600) == NULL && errno == EINVAL);
    file = nasd_bulk_open(arguments[2], O_RDWR | O_CREAT, 0600);
    CHECK(file == NULL && errno == EOPNOTSUPP);
    file = nasd_bulk_open(arguments[1], O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(file != NULL);
    CHECK(nasd_bulk_wait(file, &tag, &result) == 0);
    CHECK(nasd_bulk_write(file, "hello", 5, 3) == 5);
    CHECK(nasd_bulk_size(file) == 8);
    CHECK(nasd_bulk_read(file, parts[0], PART, 1) == 7 && memcmp(parts[0], "\0\0hello", 7) == 0);
    CHECK(nasd_bulk_read(file, parts[0], PART, 8) == 0);
    CHECK(nasd_bulk_read(file, NULL, 5, 0) == -1 && errno == EFAULT);
    CHECK(nasd_bulk_read(file, parts[0], 5, UINT64_MAX) == -1 && errno == EINVAL);
    CHECK(nasd_bulk_read(NULL, parts[0], 5, 0) == -1 && errno == EBADF);

    for (number = 0; number < PARTS; number++) {
        memset(parts[number], 'a' + number % 26, PART);
        CHECK(nasd_bulk_submit_write(file, parts[number], PART, (uint64_t)number * PART, (uint64_t)number) == 0);
    }
    for (number = 0; number < PARTS; number++) {
        CHECK(nasd_bulk_wait(file, &tag, &result) == 1 && result == PART && tag < PARTS);
        seen[tag]++;
    }
    CHECK(nasd_bulk_wait(file, &tag, &result) == 0);
    CHECK(nasd_bulk_sync(file) == 0);
    CHECK(nasd_bulk_size(file) == PARTS * PART);
    for (number = 0; number < PARTS; number++)
        CHECK(nasd_bulk_submit_read(file, read_back[number], PART, (uint64_t)number * PART, (uint64_t)number) == 0);
    CHECK(nasd_bulk_submit_read(file, NULL, 1, 0, 99) == 0);
    for (number = 0; number <= PARTS; number++) {
        CHECK(nasd_bulk_wait(file, &tag, &result) == 1);
        if (tag == 99)
            CHECK(result == -EFAULT);
        else
            CHECK(result == PART && ++seen[tag] == 2);
    }
    CHECK(memcmp(parts, read_back, sizeof parts) == 0);
    /* What is under way is waited for. */
    CHECK(nasd_bulk_submit_write(file, "end", 3, (uint64_t)PARTS * PART, 1) == 0);
    CHECK(nasd_bulk_close(file) == 0);
    CHECK(nasd_bulk_close(NULL) == -1 && errno == EBADF);
    file = nasd_bulk_open(arguments[1], O_RDONLY, 0);
    CHECK(file != NULL && nasd_bulk_size(file) == PARTS * PART + 3);
    CHECK(nasd_bulk_write(file, "x", 1, 0) == -1 && errno == EBADF);
    CHECK(nasd_bulk_close(file) == 0);
    puts("right");
    return 0;
}
