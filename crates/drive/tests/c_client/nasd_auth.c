/*
 * The NASD authentication flavor, see nasd_auth.h.
 *
 * libtirpc asks a handle for the credential and the verifier (ah_marshal) before it encodes the
 * arguments (ah_wrap). Here the digest in the verifier covers the arguments, so that marshalling
 * writes the credential alone, and wrapping the verifier and the arguments. Of the reply, the
 * verifier comes to ah_validate and the results to ah_unwrap, which checks the digest.
 */

#include "nasd_auth.h"

#include <stdlib.h>
#include <string.h>

#include "blake3.h"

enum {
    /* With as many narrowings as there may be. */
    MAX_CREDENTIAL_BYTES = 4 * 4 + 4 + NASD_CAPABILITY_BYTES + 4 + 28 * NASD_MAX_NARROWINGS,
    NARROWING_BYTES = 28,
    VERIFIER_BYTES = 32,
    DATA_VERIFIER_BYTES = 48
};

/* Sub-keys of one direction. */
struct direction {
    uint8_t arguments[BLAKE3_BYTES];
    uint8_t data[BLAKE3_BYTES];
};

struct nasd_auth {
    char credential[MAX_CREDENTIAL_BYTES];
    u_int credential_length;
    uint32_t protection;
    struct direction request, reply;
    uint32_t procedure;
    nasd_nonce nonce;
    nasd_data_verifier reply_verifier;
    int reply_has_data_tag;
    int reply_was_proved;
};

/* Bytes that grow; `failed` once memory has run out. */
struct buffer {
    uint8_t *bytes;
    size_t length;
    int failed;
};

static void append(struct buffer *buffer, const void *bytes, size_t length)
{
    uint8_t *grown = buffer->failed ? NULL : realloc(buffer->bytes, buffer->length + length + 1);

    if (grown == NULL) {
        buffer->failed = 1;
        return;
    }
    memcpy(grown + buffer->length, bytes, length);
    buffer->bytes = grown;
    buffer->length += length;
}

static void append_integer(struct buffer *buffer, uint64_t value, int bytes)
{
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) {
        uint8_t byte = (uint8_t)(value >> shift);
        append(buffer, &byte, 1);
    }
}

static void append_nonce(struct buffer *buffer, const nasd_nonce *nonce)
{
    append_integer(buffer, nonce->timestamp, 8);
    append_integer(buffer, nonce->unique, 8);
}

/* MAC of suite 0: keyed BLAKE3 of nonce and message, of which the first 16 bytes are used. */
static int mac(const uint8_t key[BLAKE3_BYTES], const nasd_nonce *nonce,
               const struct buffer *message, uint8_t tag[BLAKE3_BYTES])
{
    struct buffer input = {0};

    append_nonce(&input, nonce);
    append(&input, message->bytes, message->length);
    if (!input.failed && !message->failed)
        blake3_keyed(key, input.bytes, input.length, tag);
    free(input.bytes);
    return !input.failed && !message->failed;
}

/* A message and its bulk data; `data.bytes` is NULL where the digest does not cover data. */
struct covered {
    struct buffer head;
    struct buffer data;
};

/*
 * "What each digest covers" of the document. `request_nonce` is NULL in requests. The digest, and
 * the tag of the data if it covers any.
 */
static int digest(const struct direction *keys, const nasd_nonce *nonce,
                  const nasd_nonce *request_nonce, const struct covered *covered,
                  uint8_t tag[BLAKE3_BYTES], uint8_t data_tag[BLAKE3_BYTES])
{
    struct buffer message = {0};
    int has_data = covered->data.bytes != NULL;
    int done = 1;

    append_integer(&message, covered->head.length, 8);
    append_integer(&message, has_data ? covered->data.length : UINT64_MAX, 8);
    if (request_nonce != NULL)
        append_nonce(&message, request_nonce);
    append(&message, covered->head.bytes, covered->head.length);
    if (has_data) {
        done = mac(keys->data, nonce, &covered->data, data_tag);
        append(&message, data_tag, NASD_DIGEST_BYTES);
    }
    done = done && !covered->head.failed && mac(keys->arguments, nonce, &message, tag);
    free(message.bytes);
    return done;
}

static void free_covered(struct covered *covered)
{
    free(covered->head.bytes);
    free(covered->data.bytes);
}

static struct nasd_auth *private_of(const AUTH *auth)
{
    return auth->ah_private;
}

/* The encoding of `value` in new memory. */
static uint8_t *encoded(xdrproc_t encode, void *value, size_t *length)
{
    XDR xdrs;
    uint8_t *bytes;

    *length = xdr_sizeof(encode, value);
    bytes = malloc(*length + 1);
    if (bytes == NULL)
        return NULL;
    xdrmem_create(&xdrs, (char *)bytes, (u_int)*length, XDR_ENCODE);
    if (!(*encode)(&xdrs, value)) {
        free(bytes);
        bytes = NULL;
    }
    xdr_destroy(&xdrs);
    return bytes;
}

/* Adds `bytes` to what is covered: all but the bulk data and its padding to the head. */
static void cover(struct covered *covered, const uint8_t *bytes, size_t length, int is_bulk,
                  size_t data_length, uint32_t protection)
{
    size_t padded = is_bulk ? (data_length + 3) / 4 * 4 : 0;

    append(&covered->head, bytes, length - padded);
    if (is_bulk && (protection & NASD_INTEGRITY_DATA))
        append(&covered->data, bytes + length - padded, data_length);
}

static int seal_request(struct nasd_auth *self, const uint8_t *arguments, size_t length,
                        const void *value, nasd_data_verifier *verifier, int *has_data_tag)
{
    struct covered covered = {0};
    uint8_t tag[BLAKE3_BYTES] = {0}, data_tag[BLAKE3_BYTES] = {0};
    int is_write = self->procedure == NASD_WRITE;
    size_t data_length = is_write ? ((const nasd_write_arguments *)value)->data.data_len : 0;
    int done = 1;

    verifier->nonce = self->nonce;
    *has_data_tag = is_write && (self->protection & NASD_INTEGRITY_DATA);
    if (self->protection != NASD_NO_PROTECTION) {
        append_integer(&covered.head, NASD_DRIVE_PROGRAM, 4);
        append_integer(&covered.head, NASD_DRIVE_VERSION, 4);
        append_integer(&covered.head, self->procedure, 4);
        append(&covered.head, self->credential, self->credential_length);
        cover(&covered, arguments, length, is_write, data_length, self->protection);
        done = digest(&self->request, &self->nonce, NULL, &covered, tag, data_tag);
        free_covered(&covered);
    }
    memcpy(verifier->digest, tag, NASD_DIGEST_BYTES);
    memcpy(verifier->data_tag, data_tag, NASD_DIGEST_BYTES);
    return done;
}

static int put_opaque_auth(XDR *xdrs, char *body, u_int length)
{
    struct opaque_auth opaque = {NASD_AUTH_FLAVOR, body, length};

    return xdr_opaque_auth(xdrs, &opaque);
}

static int marshal(AUTH *auth, XDR *xdrs)
{
    struct nasd_auth *self = private_of(auth);

    return put_opaque_auth(xdrs, self->credential, self->credential_length);
}

static int wrap(AUTH *auth, XDR *xdrs, xdrproc_t encode, caddr_t value)
{
    struct nasd_auth *self = private_of(auth);
    nasd_data_verifier verifier;
    size_t length, verifier_length;
    uint8_t *arguments = encoded(encode, value, &length);
    uint8_t *body = NULL;
    int done = 0, has_data_tag;

    if (arguments != NULL && seal_request(self, arguments, length, value, &verifier, &has_data_tag))
        body = encoded((xdrproc_t)xdr_nasd_data_verifier, &verifier, &verifier_length);
    /* The other verifier is this one without its last field. */
    if (body != NULL && !has_data_tag)
        verifier_length = VERIFIER_BYTES;
    if (body != NULL)
        done = put_opaque_auth(xdrs, (char *)body, (u_int)verifier_length) &&
               xdr_opaque(xdrs, (char *)arguments, (u_int)length);
    free(arguments);
    free(body);
    return done;
}

static int validate(AUTH *auth, struct opaque_auth *opaque)
{
    struct nasd_auth *self = private_of(auth);
    char body[DATA_VERIFIER_BYTES] = {0};
    XDR xdrs;
    int done;

    if (opaque->oa_flavor != NASD_AUTH_FLAVOR ||
        (opaque->oa_length != VERIFIER_BYTES && opaque->oa_length != DATA_VERIFIER_BYTES))
        return FALSE;
    memcpy(body, opaque->oa_base, opaque->oa_length);
    self->reply_has_data_tag = opaque->oa_length == DATA_VERIFIER_BYTES;
    xdrmem_create(&xdrs, body, sizeof body, XDR_DECODE);
    done = xdr_nasd_data_verifier(&xdrs, &self->reply_verifier);
    xdr_destroy(&xdrs);
    return done;
}

static int reply_is_right(struct nasd_auth *self, const uint8_t *results, size_t length,
                          const void *value)
{
    struct covered covered = {0};
    uint8_t tag[BLAKE3_BYTES], data_tag[BLAKE3_BYTES] = {0};
    const nasd_read_result *read = value;
    int is_data = self->procedure == NASD_READ && read->status == NASD_OK;
    size_t data_length = is_data ? read->nasd_read_result_u.read.data.data_len : 0;
    int covers_data = is_data && (self->protection & NASD_INTEGRITY_DATA);
    int done;

    cover(&covered, results, length, is_data, data_length, self->protection);
    done = digest(&self->reply, &self->reply_verifier.nonce, &self->nonce, &covered, tag, data_tag);
    free_covered(&covered);
    return done && !covers_data == !self->reply_has_data_tag &&
           memcmp(tag, self->reply_verifier.digest, NASD_DIGEST_BYTES) == 0 &&
           memcmp(data_tag, self->reply_verifier.data_tag, NASD_DIGEST_BYTES) == 0;
}

/* Every result begins with its status: success counts only with a right digest. */
static int unwrap(AUTH *auth, XDR *xdrs, xdrproc_t decode, caddr_t value)
{
    static const char zeros[NASD_DIGEST_BYTES];
    struct nasd_auth *self = private_of(auth);
    nasd_status status;
    uint8_t *results;
    size_t length;

    self->reply_was_proved = 0;
    if (!(*decode)(xdrs, value))
        return FALSE;
    memcpy(&status, value, sizeof status);
    if (self->protection == NASD_NO_PROTECTION)
        return TRUE;
    if (memcmp(self->reply_verifier.digest, zeros, sizeof zeros) == 0)
        return status != NASD_OK;
    results = encoded(decode, value, &length);
    if (results == NULL)
        return FALSE;
    self->reply_was_proved = reply_is_right(self, results, length, value);
    free(results);
    return self->reply_was_proved;
}

static void next_verifier(AUTH *auth)
{
    (void)auth;
}

/* Nothing to refresh: the caller gets another capability, and another handle. */
static int refresh(AUTH *auth, void *message)
{
    (void)auth;
    (void)message;
    return FALSE;
}

static void destroy(AUTH *auth)
{
    free(auth->ah_private);
    free(auth);
}

static struct auth_ops operations = {next_verifier, marshal, validate, refresh,
                                     destroy,       wrap,    unwrap};

/* The key of a capability after all its narrowings, from its own: "Delegation" of the document. */
static void narrow(const nasd_shown_capability *shown, const uint8_t key[NASD_KEY_BYTES],
                   uint8_t narrowed[NASD_KEY_BYTES])
{
    static const char domain[] = "nasd-narrowing-1";

    memcpy(narrowed, key, NASD_KEY_BYTES);
    for (u_int i = 0; i < shown->narrowings.narrowings_len; i++) {
        uint8_t message[sizeof domain - 1 + NARROWING_BYTES];
        uint8_t before[NASD_KEY_BYTES];
        XDR xdrs;

        memcpy(message, domain, sizeof domain - 1);
        xdrmem_create(&xdrs, (char *)message + sizeof domain - 1, NARROWING_BYTES, XDR_ENCODE);
        xdr_nasd_narrowing(&xdrs, &shown->narrowings.narrowings_val[i]);
        xdr_destroy(&xdrs);
        memcpy(before, narrowed, NASD_KEY_BYTES);
        blake3_keyed(before, message, sizeof message, narrowed);
    }
}

AUTH *nasd_auth_create(const nasd_shown_capability *shown, const uint8_t own_key[NASD_KEY_BYTES],
                       uint32_t protection)
{
    uint8_t key[NASD_KEY_BYTES];
    AUTH *auth = calloc(1, sizeof *auth);
    struct nasd_auth *self = calloc(1, sizeof *self);
    nasd_credential credential = {
        .key = NASD_KEY_CAPABILITY,
        .suite = NASD_SUITE_BLAKE3,
        .protection = protection,
        .capability = {
            .shown = NASD_SHOWN_CAPABILITY,
            .nasd_shown_by_holder_u.plain = *shown,
        },
    };
    XDR xdrs;

    if (auth == NULL || self == NULL) {
        free(auth);
        free(self);
        return NULL;
    }
    xdrmem_create(&xdrs, self->credential, MAX_CREDENTIAL_BYTES, XDR_ENCODE);
    xdr_nasd_credential(&xdrs, &credential);
    self->credential_length = xdr_getpos(&xdrs);
    xdr_destroy(&xdrs);
    self->protection = protection;
    narrow(shown, own_key, key);
    blake3_derive_key("nasd v1 blake3 request arguments", key, NASD_KEY_BYTES,
                      self->request.arguments);
    blake3_derive_key("nasd v1 blake3 request data", key, NASD_KEY_BYTES, self->request.data);
    blake3_derive_key("nasd v1 blake3 reply arguments", key, NASD_KEY_BYTES, self->reply.arguments);
    blake3_derive_key("nasd v1 blake3 reply data", key, NASD_KEY_BYTES, self->reply.data);
    auth->ah_ops = &operations;
    auth->ah_private = self;
    return auth;
}

void nasd_auth_prepare(AUTH *auth, uint32_t procedure, nasd_nonce nonce)
{
    private_of(auth)->procedure = procedure;
    private_of(auth)->nonce = nonce;
}

int nasd_auth_reply_was_proved(const AUTH *auth)
{
    return private_of(auth)->reply_was_proved;
}
