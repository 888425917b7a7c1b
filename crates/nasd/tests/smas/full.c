/* What can't be made durable: a close that fails, before and after which somebody looks. */
#include <smas.h>
#include <stdio.h>
#include <stdlib.h>

/* Less than what is sent without being asked for. */
enum { BYTES = (1 << 20) - 1 };

int main(void) {
    /* As long as it is open, this process stays a client. */
    int other = smas_open("main:/other", O_RDWR);
    int fd = smas_open("main:/full", O_RDWR);
    char *bytes = malloc(BYTES);
    if (other < 0 || fd < 0 || bytes == NULL)
        return 1;
    for (int i = 0; i < BYTES; i++)
        bytes[i] = (char)((unsigned)i * 7919u >> 5);
    printf("%d\n", smas_write(fd, bytes, BYTES) == BYTES);
    fflush(stdout);
    getchar();
    printf("%d\n", smas_close(fd));
    fflush(stdout);
    getchar();
    return smas_close(fd) == 0 || smas_close(other) != 0;
}
