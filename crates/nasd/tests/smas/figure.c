/* The program of Figure 1(a) of the SMAS paper, as it stands there, in a main that counts what is processed. */
#include <smas.h>
#include <stdio.h>
#include <string.h>

static long processed, sum;

static void process(const char *buffer) {
    int first;
    memcpy(&first, buffer, sizeof first);
    processed++;
    sum += first;
}

int main(void) {
    int fd;
    char buffer[100];

    /* Open remote file */
    fd = smas_open("zeus.cs.uoi.gr:/pub/testfile", O_RDONLY);
    /* Inform the disk about the record's structure (100 bytes) */
    smas_recordstruct(fd, INT, 4, CHAR, 96);
    /* Specify the filter to use: check if 1st field > 10 */
    smas_usefilter(fd, SQLSELECT_FILTER, 1, GREATER, 10);

    /* Now get and process all selected records */
    while ( smas_nextrecord(fd, buffer) != 0 )
        process(buffer);

    printf("%ld %ld %d\n", processed, sum, smas_error(fd));
    return smas_close(fd) == 0 ? 0 : 1;
}
