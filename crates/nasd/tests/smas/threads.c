/* Threads with a file each, and several with one file: together they have every record once. */
#include <pthread.h>
#include <smas.h>
#include <stdio.h>

enum { RECORDS = 20000, THREADS = 4 };

static int shared = -1;
static int seen[RECORDS];

/* Takes records of a file until there are none; how many, or -1 if one is not what it should be. */
static long take(int fd, int *counts) {
    int32_t record[2];
    long taken = 0;
    while (smas_nextrecord(fd, record) == sizeof record) {
        if (record[0] < 0 || record[0] >= RECORDS || record[1] != 3 * record[0])
            return -1;
        if (counts)
            __atomic_fetch_add(&counts[record[0]], 1, __ATOMIC_RELAXED);
        taken++;
    }
    return smas_error(fd) == 0 ? taken : -1;
}

static int selected(void) {
    int fd = smas_open("main:/numbers", O_RDONLY);
    if (fd < 0 || smas_recordstruct(fd, INT, 4, INT, 4) != 0)
        return -1;
    return smas_usefilter(fd, SQLSELECT_FILTER, 1, GREATER_EQUAL, RECORDS / 2) == 0 ? fd : -1;
}

static void *own(void *result) {
    int fd = selected();
    *(long *)result = take(fd, NULL);
    smas_close(fd);
    return NULL;
}

static void *together(void *result) {
    *(long *)result = take(shared, seen);
    return NULL;
}

static long run(void *(*start)(void *)) {
    pthread_t threads[THREADS];
    long results[THREADS], sum = 0;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, start, &results[i]) != 0)
            return -1;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        sum += results[i] < 0 ? -THREADS * (long)RECORDS : results[i];
    }
    return sum;
}

int main(void) {
    int fd = smas_open("main:/numbers", O_WRONLY | O_CREAT | O_EXCL);
    for (int32_t i = 0; i < RECORDS; i++) {
        int32_t record[2] = {i, 3 * i};
        if (smas_write(fd, record, sizeof record) != sizeof record)
            return 1;
    }
    if (smas_close(fd) != 0)
        return 1;
    long each = run(own);
    shared = selected();
    long all = run(together);
    for (int i = 0; i < RECORDS; i++)
        if (seen[i] != (i >= RECORDS / 2))
            printf("record %d was had %d times\n", i, seen[i]);
    printf("%ld %ld\n", each, all);
    return 0;
}
