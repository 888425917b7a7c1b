/*
 * BLAKE3 in its two keyed forms, written from its paper for clarity, not speed: what suite 0 of
 * the NASD digests needs.
 */

#ifndef NASD_BLAKE3_H
#define NASD_BLAKE3_H

#include <stddef.h>
#include <stdint.h>

#define BLAKE3_BYTES 32

/* The keyed hash of `length` bytes. */
void blake3_keyed(const uint8_t key[BLAKE3_BYTES], const uint8_t *input, size_t length,
                  uint8_t output[BLAKE3_BYTES]);

/* derive_key: a key for the purpose that `context` names, from `material`. */
void blake3_derive_key(const char *context, const uint8_t *material, size_t length,
                       uint8_t output[BLAKE3_BYTES]);

#endif
