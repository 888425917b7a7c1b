/* BLAKE3, see blake3.h. Names and numbers are those of the BLAKE3 paper, section 2. */

#include "blake3.h"

#include <string.h>

enum {
    BLOCK_BYTES = 64,
    CHUNK_BYTES = 1024,

    CHUNK_START = 1,
    CHUNK_END = 2,
    PARENT = 4,
    ROOT = 8,
    KEYED_HASH = 16,
    DERIVE_KEY_CONTEXT = 32,
    DERIVE_KEY_MATERIAL = 64
};

static const uint32_t IV[8] = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

static const uint8_t PERMUTATION[16] = {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8};

static uint32_t load_word(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

static void store_word(uint8_t *bytes, uint32_t word)
{
    for (int i = 0; i < 4; i++)
        bytes[i] = (uint8_t)(word >> 8 * i);
}

static uint32_t rotate_right(uint32_t word, int bits)
{
    return word >> bits | word << (32 - bits);
}

static void mix(uint32_t state[16], int a, int b, int c, int d, uint32_t x, uint32_t y)
{
    state[a] += state[b] + x;
    state[d] = rotate_right(state[d] ^ state[a], 16);
    state[c] += state[d];
    state[b] = rotate_right(state[b] ^ state[c], 12);
    state[a] += state[b] + y;
    state[d] = rotate_right(state[d] ^ state[a], 8);
    state[c] += state[d];
    state[b] = rotate_right(state[b] ^ state[c], 7);
}

static void round_function(uint32_t state[16], const uint32_t message[16])
{
    mix(state, 0, 4, 8, 12, message[0], message[1]);
    mix(state, 1, 5, 9, 13, message[2], message[3]);
    mix(state, 2, 6, 10, 14, message[4], message[5]);
    mix(state, 3, 7, 11, 15, message[6], message[7]);
    mix(state, 0, 5, 10, 15, message[8], message[9]);
    mix(state, 1, 6, 11, 12, message[10], message[11]);
    mix(state, 2, 7, 8, 13, message[12], message[13]);
    mix(state, 3, 4, 9, 14, message[14], message[15]);
}

/* Moves the chaining value on by one block of at most 64 bytes. */
static void compress(uint32_t chain[8], const uint8_t *block, size_t length, uint64_t counter,
                     uint32_t flags)
{
    uint8_t padded[BLOCK_BYTES] = {0};
    uint32_t message[16], permuted[16], state[16];

    memcpy(padded, block, length);
    for (int i = 0; i < 16; i++)
        message[i] = load_word(padded + 4 * i);
    memcpy(state, chain, 8 * sizeof *state);
    memcpy(state + 8, IV, 4 * sizeof *state);
    state[12] = (uint32_t)counter;
    state[13] = (uint32_t)(counter >> 32);
    state[14] = (uint32_t)length;
    state[15] = flags;
    for (int round = 0; round < 7; round++) {
        round_function(state, message);
        for (int i = 0; i < 16; i++)
            permuted[i] = message[PERMUTATION[i]];
        memcpy(message, permuted, sizeof message);
    }
    for (int i = 0; i < 8; i++)
        chain[i] = state[i] ^ state[i + 8];
}

/* The chaining value of a chunk, the `counter`th of the input. */
static void hash_chunk(const uint32_t key[8], uint32_t flags, const uint8_t *input, size_t length,
                       uint64_t counter, uint32_t root, uint32_t chain[8])
{
    uint32_t start = CHUNK_START;

    memcpy(chain, key, 8 * sizeof *chain);
    while (length > BLOCK_BYTES) {
        compress(chain, input, BLOCK_BYTES, counter, flags | start);
        input += BLOCK_BYTES;
        length -= BLOCK_BYTES;
        start = 0;
    }
    compress(chain, input, length, counter, flags | start | CHUNK_END | root);
}

/* The chaining value of a subtree that begins with the `counter`th chunk. */
static void hash_tree(const uint32_t key[8], uint32_t flags, const uint8_t *input, size_t length,
                      uint64_t counter, uint32_t root, uint32_t chain[8])
{
    uint32_t left[8], right[8];
    uint8_t block[BLOCK_BYTES];
    size_t left_chunks = 1;

    if (length <= CHUNK_BYTES) {
        hash_chunk(key, flags, input, length, counter, root, chain);
        return;
    }
    /* The left side has the largest power of two of chunks that leaves something for the right. */
    while (left_chunks * 2 * CHUNK_BYTES < length)
        left_chunks *= 2;
    hash_tree(key, flags, input, left_chunks * CHUNK_BYTES, counter, 0, left);
    hash_tree(key, flags, input + left_chunks * CHUNK_BYTES, length - left_chunks * CHUNK_BYTES,
              counter + left_chunks, 0, right);
    for (int i = 0; i < 8; i++) {
        store_word(block + 4 * i, left[i]);
        store_word(block + 32 + 4 * i, right[i]);
    }
    memcpy(chain, key, 8 * sizeof *chain);
    compress(chain, block, BLOCK_BYTES, 0, flags | PARENT | root);
}

static void hash(const uint32_t key[8], uint32_t flags, const uint8_t *input, size_t length,
                 uint8_t output[BLAKE3_BYTES])
{
    uint32_t chain[8];

    hash_tree(key, flags, input, length, 0, ROOT, chain);
    for (int i = 0; i < 8; i++)
        store_word(output + 4 * i, chain[i]);
}

void blake3_keyed(const uint8_t key[BLAKE3_BYTES], const uint8_t *input, size_t length,
                  uint8_t output[BLAKE3_BYTES])
{
    uint32_t words[8];

    for (int i = 0; i < 8; i++)
        words[i] = load_word(key + 4 * i);
    hash(words, KEYED_HASH, input, length, output);
}

void blake3_derive_key(const char *context, const uint8_t *material, size_t length,
                       uint8_t output[BLAKE3_BYTES])
{
    uint8_t context_key[BLAKE3_BYTES];
    uint32_t words[8];

    hash(IV, DERIVE_KEY_CONTEXT, (const uint8_t *)context, strlen(context), context_key);
    for (int i = 0; i < 8; i++)
        words[i] = load_word(context_key + 4 * i);
    hash(words, DERIVE_KEY_MATERIAL, material, length, output);
}
