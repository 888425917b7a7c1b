/*
 * A client of a drive in C, to test that specs/nasd.x and docs/wire-protocol.md suffice to write
 * one.
 *
 *   client PORT inquiry
 *   client PORT read  CAPABILITY KEY PROTECTION OFFSET LENGTH    data to standard output
 *   client PORT write CAPABILITY KEY PROTECTION OFFSET LENGTH    data from standard input
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

static int hex_to_bytes(const char *text, uint8_t *bytes, size_t length)
{
    if (strlen(text) != 2 * length)
        return 0;
    for (size_t i = 0; i < length; i++) {
        unsigned int byte;
        if (sscanf(text + 2 * i, "%2x", &byte) != 1)
            return 0;
        bytes[i] = (uint8_t)byte;
    }
    return 1;
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

/* The capability's fields are those of the structure, so that its bytes simply decode. */
static AUTH *authority(char **arguments)
{
    uint8_t bytes[64], key[NASD_KEY_BYTES];
    nasd_capability capability;
    XDR xdrs;

    if (!hex_to_bytes(arguments[0], bytes, sizeof bytes) ||
        !hex_to_bytes(arguments[1], key, sizeof key))
        return NULL;
    xdrmem_create(&xdrs, (char *)bytes, sizeof bytes, XDR_DECODE);
    if (!xdr_nasd_capability(&xdrs, &capability))
        return NULL;
    return nasd_auth_create(&capability, key, (uint32_t)atoi(arguments[2]));
}

/* Which object: every capability says. */
static void name_object(const char *capability, u_int *partition, u_quad_t *object)
{
    uint8_t bytes[64];

    *partition = 0;
    *object = 0;
    if (!hex_to_bytes(capability, bytes, sizeof bytes))
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

/* Arguments: read|write CAPABILITY KEY PROTECTION OFFSET LENGTH. */
static int transfer(CLIENT *client, char **arguments)
{
    nasd_region region = {
        .offset = strtoull(arguments[4], NULL, 10),
        .length = strtoull(arguments[5], NULL, 10),
        .count = 1,
    };
    int is_read = strcmp(arguments[0], "read") == 0;
    nasd_time clock;
    int outcome = inquire(client, &clock, 0);

    if (outcome != DONE)
        return outcome;
    auth_destroy(client->cl_auth);
    client->cl_auth = authority(arguments + 1);
    if (client->cl_auth == NULL)
        return MISUSED;
    nasd_auth_prepare(client->cl_auth, is_read ? NASD_READ : NASD_WRITE, fresh_nonce(clock));
    return is_read ? do_read(client, arguments[1], &region)
                   : do_write(client, arguments[1], &region);
}

int main(int count, char **arguments)
{
    CLIENT *client;
    nasd_time clock;

    if (count != 3 && count != 8) {
        fprintf(stderr, "usage: see the first lines of client.c\n");
        return MISUSED;
    }
    client = connect_to(arguments[1]);
    if (client == NULL) {
        clnt_pcreateerror("connect");
        return BROKEN;
    }
    return count == 3 ? inquire(client, &clock, 1) : transfer(client, arguments + 2);
}
