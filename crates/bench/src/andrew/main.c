/* The program that the Andrew benchmark builds: packs a file, unpacks that, and compares; exits with 0 if all is as it was. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

int main(int count, char **words)
{
    FILE *file = count == 2 ? fopen(words[1], "rb") : NULL;
    size_t room = 16 << 20, length, packed, unpacked;
    char *data = malloc(room), *small = malloc(ZSTD_compressBound(room)), *again = malloc(room);
    if (!file || !data || !small || !again)
        return 2;
    length = fread(data, 1, room, file);
    packed = ZSTD_compress(small, ZSTD_compressBound(room), data, length, 3);
    if (length == 0 || ZSTD_isError(packed))
        return 3;
    unpacked = ZSTD_decompress(again, room, small, packed);
    return unpacked == length && memcmp(data, again, length) == 0 ? 0 : 4;
}
