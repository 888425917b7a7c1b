/*
 * A client of a drive in C, to test that specs/nasd.x and docs/wire-protocol.md suffice to write
 * one.
 *
 *   client PORT inquiry
 *   client PORT read  CAPABILITY KEY PROTECTION OFFSET LENGTH    data to standard output
 *   client PORT write CAPABILITY KEY PROTECTION OFFSET LENGTH    data from standard input
 *   client PORT punch|blocksrequired CAPABILITY KEY PROTECTION OFFSET LENGTH
 *   client PORT seek  CAPABILITY KEY PROTECTION OFFSET TARGET
 *   client PORT fastcopy CAPABILITY KEY PROTECTION 0 0
 *   client 0 seal UNDER SALT NEW                                 seals a key, without any drive
 *
 * CAPABILITY and KEY are hexadecimal: 64 bytes as on the wire, and 32. What the drive answered goes
 * to standard error, a line `name value` each. Exit status: 0 if the drive did it, 1 if it refused
 * or failed, 2 if the call itself failed, 3 if the command is wrong.
 */

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "blake3.h"
#include "nasd.h"
#include "nasd_auth.h"

enum { DONE = 0, REFUSED = 1, BROKEN = 2, MISUSED = 3 };

/* Small, so that every call of some size is cut into several fragments. */
enum { FRAGMENT_BYTES = 4096 };

static CLIENT *connect_to(const char *port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)atoi(port)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    int socket = RPC_ANYSOCK;

    return clnttcp_create(&address, NASD_DRIVE_PROGRAM, NASD_DRIVE_VERSION, &socket, FRAGMENT_BYTES,
                          FRAGMENT_BYTES);
}

/* Takes the first `length` bytes of the text. */
static int hex_prefix(const char *text, uint8_t *bytes, size_t length)
{
    if (strlen(text) < 2 * length)
        return 0;
    for (size_t i = 0; i < length; i++) {
        unsigned int byte;
        if (sscanf(text + 2 * i, "%2x", &byte) != 1)
            return 0;
        bytes[i] = (uint8_t)byte;
    }
    return 1;
}

static int hex_to_bytes(const char *text, uint8_t *bytes, size_t length)
{
    return strlen(text) == 2 * length && hex_prefix(text, bytes, length);
}

static void print_information(const nasd_drive_information *drive)
{
    fprintf(stderr, "drive %016" PRIx64 "\ncell ", (uint64_t)drive->drive);
    for (int i = 0; i < NASD_CELL_ID_BYTES; i++)
        fprintf(stderr, "%02x", (uint8_t)drive->cell[i]);
    fprintf(stderr, "\nclock %" PRIu64 "\ninstance %" PRIu64 "\nsuites", (uint64_t)drive->clock,
            (uint64_t)drive->instance);
    for (u_int i = 0; i < drive->suites.suites_len; i++)
        fprintf(stderr, " %d", (int)drive->suites.suites_val[i]);
    fprintf(stderr, "\nminimum_protection %u\nmax_transfer %u\npartitions",
            drive->minimum_protection, drive->max_transfer);
    for (u_int i = 0; i < drive->partitions.partitions_len; i++)
        fprintf(stderr, " %u", drive->partitions.partitions_val[i]);
    fprintf(stderr, "\n");
}

/* With AUTH_NONE, as anybody may. Also tells the drive's clock, for the nonce. */
static int inquire(CLIENT *client, nasd_time *clock, int print)
{
    nasd_inquiry_result *result = nasd_inquiry_1(NULL, client);

    if (result == NULL) {
        clnt_perror(client, "inquiry");
        return BROKEN;
    }
    if (result->status != NASD_OK) {
        fprintf(stderr, "status %d\n", (int)result->status);
        return REFUSED;
    }
    *clock = result->nasd_inquiry_result_u.information.clock;
    if (print)
        print_information(&result->nasd_inquiry_result_u.information);
    return DONE;
}

/*
 * The fields of a capability and of the narrowings that follow it are those of the structure, so that
 * its bytes simply decode.
 */
static AUTH *authority(char **arguments)
{
    uint8_t bytes[NASD_CAPABILITY_BYTES + 4 + 28 * NASD_MAX_NARROWINGS], key[NASD_KEY_BYTES];
    size_t length = strlen(arguments[0]) / 2;
    nasd_shown_capability shown = {0};
    AUTH *auth;
    XDR xdrs;

    if (length > sizeof bytes || !hex_to_bytes(arguments[0], bytes, length) ||
        !hex_to_bytes(arguments[1], key, sizeof key))
        return NULL;
    xdrmem_create(&xdrs, (char *)bytes, (u_int)length, XDR_DECODE);
    if (!xdr_nasd_shown_capability(&xdrs, &shown))
        return NULL;
    auth = nasd_auth_create(&shown, key, (uint32_t)atoi(arguments[2]));
    xdr_free((xdrproc_t)xdr_nasd_shown_capability, (char *)&shown);
    return auth;
}

/* Which object: every capability says. */
static void name_object(const char *capability, u_int *partition, u_quad_t *object)
{
    uint8_t bytes[NASD_CAPABILITY_BYTES];

    *partition = 0;
    *object = 0;
    if (!hex_prefix(capability, bytes, sizeof bytes))
        return;
    for (int i = 8; i < 12; i++)
        *partition = *partition << 8 | bytes[i];
    for (int i = 12; i < 20; i++)
        *object = *object << 8 | bytes[i];
}

static nasd_nonce fresh_nonce(nasd_time clock)
{
    nasd_nonce nonce = {.timestamp = clock};

    /* One request of a new sender: 40 random bits, and the number 0. */
    if (getrandom(&nonce.unique, sizeof nonce.unique, 0) != sizeof nonce.unique)
        abort();
    nonce.unique &= ~(u_quad_t)0xffffff;
    return nonce;
}

static int report(CLIENT *client, const nasd_status *status)
{
    if (status == NULL) {
        clnt_perror(client, "call");
        return BROKEN;
    }
    fprintf(stderr, "status %d\nproved %d\n", (int)*status,
            nasd_auth_reply_was_proved(client->cl_auth));
    return *status == NASD_OK ? DONE : REFUSED;
}

static int do_read(CLIENT *client, const char *capability, nasd_region *region)
{
    nasd_read_arguments arguments = {.regions = {1, region}};
    nasd_read_result *result;
    int outcome;

    name_object(capability, &arguments.partition, &arguments.object);
    result = nasd_read_1(&arguments, client);
    outcome = report(client, result == NULL ? NULL : &result->status);
    if (outcome == DONE) {
        nasd_read_data *read = &result->nasd_read_result_u.read;
        fprintf(stderr, "logical_size %" PRIu64 "\n", (uint64_t)read->logical_size);
        fwrite(read->data.data_val, 1, read->data.data_len, stdout);
    }
    return outcome;
}

static int do_write(CLIENT *client, const char *capability, nasd_region *region)
{
    nasd_write_arguments arguments = {.durable = TRUE, .regions = {1, region}};
    nasd_write_result *result;
    int outcome;

    name_object(capability, &arguments.partition, &arguments.object);
    arguments.data.data_len = (u_int)region->length;
    arguments.data.data_val = malloc(region->length + 1);
    if (arguments.data.data_val == NULL ||
        fread(arguments.data.data_val, 1, region->length, stdin) != region->length)
        return MISUSED;
    result = nasd_write_1(&arguments, client);
    outcome = report(client, result == NULL ? NULL : &result->status);
    if (outcome == DONE) {
        nasd_written *written = &result->nasd_write_result_u.written;
        fprintf(stderr, "instance %" PRIu64 "\nlength %" PRIu64 "\nlogical_size %" PRIu64 "\n",
                (uint64_t)written->instance, (uint64_t)written->length,
                (uint64_t)written->logical_size);
    }
    free(arguments.data.data_val);
    return outcome;
}

static int do_punch(CLIENT *client, const char *capability, nasd_region *region)
{
    nasd_punch_arguments arguments = {.durable = TRUE, .regions = {1, region}};
    nasd_attributes_result *result;
    int outcome;

    name_object(capability, &arguments.partition, &arguments.object);
    result = nasd_punch_1(&arguments, client);
    outcome = report(client, result == NULL ? NULL : &result->status);
    if (outcome == DONE)
        fprintf(stderr, "logical_size %" PRIu64 "\n",
                (uint64_t)result->nasd_attributes_result_u.attributes.logical_size);
    return outcome;
}

static int do_blocksrequired(CLIENT *client, const char *capability, nasd_region *region)
{
    nasd_blocksrequired_arguments arguments = {.regions = {1, region}};
    nasd_blocksrequired_result *result;
    int outcome;

    name_object(capability, &arguments.partition, &arguments.object);
    result = nasd_blocksrequired_1(&arguments, client);
    outcome = report(client, result == NULL ? NULL : &result->status);
    if (outcome == DONE) {
        nasd_blocks_required *required = &result->nasd_blocksrequired_result_u.required;
        fprintf(stderr, "estimated %" PRIu64 "\nmaximum %" PRIu64 "\n",
                (uint64_t)required->estimated, (uint64_t)required->maximum);
    }
    return outcome;
}

/* The length is what is sought. */
static int do_seek(CLIENT *client, const char *capability, nasd_region *region)
{
    nasd_seek_arguments arguments = {.offset = region->offset};
    nasd_seek_result *result;
    int outcome;

    name_object(capability, &arguments.partition, &arguments.object);
    arguments.target = (nasd_seek_target)region->length;
    result = nasd_seek_1(&arguments, client);
    outcome = report(client, result == NULL ? NULL : &result->status);
    if (outcome == DONE) {
        const u_quad_t *position = result->nasd_seek_result_u.sought.position;
        if (position == NULL)
            fprintf(stderr, "position none\n");
        else
            fprintf(stderr, "position %" PRIu64 "\n", (uint64_t)*position);
    }
    return outcome;
}

static int do_fastcopy(CLIENT *client, const char *capability, nasd_region *region)
{
    nasd_fastcopy_arguments arguments;
    nasd_create_result *result;
    int outcome;

    (void)region;
    name_object(capability, &arguments.partition, &arguments.object);
    arguments.copy = NULL;
    result = nasd_fastcopy_1(&arguments, client);
    outcome = report(client, result == NULL ? NULL : &result->status);
    if (outcome == DONE) {
        nasd_created *created = &result->nasd_create_result_u.created;
        fprintf(stderr, "object %" PRIu64 "\ncopied_object %" PRIu64 "\n",
                (uint64_t)created->object, (uint64_t)created->attributes.copied_object);
    }
    return outcome;
}

static const struct verb {
    const char *name;
    uint32_t procedure;
    int (*call)(CLIENT *client, const char *capability, nasd_region *region);
} verbs[] = {
    {"read", NASD_READ, do_read},
    {"write", NASD_WRITE, do_write},
    {"punch", NASD_PUNCH, do_punch},
    {"blocksrequired", NASD_BLOCKSREQUIRED, do_blocksrequired},
    {"seek", NASD_SEEK, do_seek},
    {"fastcopy", NASD_FASTCOPY, do_fastcopy},
};

/* Arguments: VERB CAPABILITY KEY PROTECTION OFFSET LENGTH. */
static int by_capability(CLIENT *client, char **arguments)
{
    nasd_region region = {
        .offset = strtoull(arguments[4], NULL, 10),
        .length = strtoull(arguments[5], NULL, 10),
        .count = 1,
    };
    const struct verb *verb = NULL;
    nasd_time clock;
    int outcome = inquire(client, &clock, 0);

    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
        if (strcmp(arguments[0], verbs[i].name) == 0)
            verb = &verbs[i];
    if (outcome != DONE || verb == NULL)
        return verb == NULL ? MISUSED : outcome;
    auth_destroy(client->cl_auth);
    client->cl_auth = authority(arguments + 1);
    if (client->cl_auth == NULL)
        return MISUSED;
    nasd_auth_prepare(client->cl_auth, verb->procedure, fresh_nonce(clock));
    return verb->call(client, arguments[1], &region);
}

static void print_bytes(const char *name, const uint8_t *bytes, size_t length)
{
    fprintf(stderr, "%s ", name);
    for (size_t i = 0; i < length; i++)
        fprintf(stderr, "%02x", bytes[i]);
    fprintf(stderr, "\n");
}

/* Arguments: UNDER SALT NEW. */
static int seal(char **arguments)
{
    uint8_t material[NASD_KEY_BYTES + NASD_SALT_BYTES], sealed[NASD_KEY_BYTES];
    uint8_t pad[BLAKE3_BYTES], tag_key[BLAKE3_BYTES], tag[BLAKE3_BYTES];
    uint8_t covered[NASD_SALT_BYTES + NASD_KEY_BYTES];

    if (!hex_to_bytes(arguments[0], material, NASD_KEY_BYTES) ||
        !hex_to_bytes(arguments[1], material + NASD_KEY_BYTES, NASD_SALT_BYTES) ||
        !hex_to_bytes(arguments[2], sealed, NASD_KEY_BYTES))
        return MISUSED;
    blake3_derive_key("nasd v1 sealed key pad", material, sizeof material, pad);
    blake3_derive_key("nasd v1 sealed key tag", material, sizeof material, tag_key);
    for (int i = 0; i < NASD_KEY_BYTES; i++)
        sealed[i] ^= pad[i];
    memcpy(covered, material + NASD_KEY_BYTES, NASD_SALT_BYTES);
    memcpy(covered + NASD_SALT_BYTES, sealed, NASD_KEY_BYTES);
    blake3_keyed(tag_key, covered, sizeof covered, tag);
    print_bytes("sealed", sealed, sizeof sealed);
    print_bytes("tag", tag, NASD_TAG_BYTES);
    return DONE;
}

int main(int count, char **arguments)
{
    CLIENT *client;
    nasd_time clock;

    if (count == 6 && strcmp(arguments[2], "seal") == 0)
        return seal(arguments + 3);
    if (count != 3 && count != 8) {
        fprintf(stderr, "usage: see the first lines of client.c\n");
        return MISUSED;
    }
    client = connect_to(arguments[1]);
    if (client == NULL) {
        clnt_pcreateerror("connect");
        return BROKEN;
    }
    return count == 3 ? inquire(client, &clock, 1) : by_capability(client, arguments + 2);
}
