/*
 * SMAS: files of a cell, read as records that filters at its drives select.
 *
 *     int fd = smas_open("main:/pub/testfile", O_RDONLY);
 *     smas_recordstruct(fd, INT, 4, CHAR, 96);
 *     smas_usefilter(fd, SQLSELECT_FILTER, 1, GREATER, 10);
 *     while (smas_nextrecord(fd, buffer) != 0)
 *         process(buffer);
 *     if (smas_error(fd) != 0)
 *         fprintf(stderr, "%s\n", smas_strerror());
 *     smas_close(fd);
 *
 * Paths are VOLUME:/path, of the cell whose directory NASD_CELL names, or the user's own. Calls may be made by any thread;
 * those of one file go one after the other. Where a call says that it has failed, errno tells why, and smas_strerror() in
 * words. After fork() the child must not make any. Link with -lsmas.
 *
 * Files of lines, as CSV, are told of by smas_recordformat instead of smas_recordstruct:
 *
 *     smas_recordformat(fd, CSV_FORMAT, "id:int,price:float,city:text");
 *     smas_usefilter(fd, SQL_FILTER, "SELECT id, price FROM trips WHERE city = 'Patras'");
 *     while (smas_nextrecord_n(fd, line, sizeof line) != 0)
 *         puts(line);
 *
 * smas_recordstruct and smas_usefilter are macros of C11. C++ programs, and those in other languages, call what they stand for,
 * smas_recordstruct_n and smas_usefilter_n.
 */
#ifndef SMAS_H
#define SMAS_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of fields, each followed by its bytes. Numbers are in the order of this machine's memory. */
enum smas_kind {
    INT = 1,      /* signed: 1, 2, 4 or 8 bytes */
    CHAR = 2,     /* text: any number of bytes; it ends before the first zero byte */
    UNSIGNED = 3, /* 1, 2, 4 or 8 bytes; one above INT64_MAX can't be looked at */
    FLOAT = 4     /* 4 or 8 bytes */
};

/* Formats of lines. CSV and TSV have a first line that is no record, unless | SMAS_NO_HEADER says that there is none. */
enum smas_format {
    CSV_FORMAT = 1,     /* fields with , between, and " around those that hold one */
    TSV_FORMAT = 2,     /* the same with a tab */
    JSON_FORMAT = 3,    /* a JSON object each */
    SMAS_NO_HEADER = 16 /* of CSV and TSV */
};

/*
 * Filters, and the arguments that follow. CONDITIONS are: the number of a field, from 1, an operator, a value; and so on,
 * with AND or OR between, from left to right. Without any, all records are meant. Booleans of JSON are compared with 0 and 1.
 */
enum smas_filter {
    SQLSELECT_FILTER = 1, /* CONDITIONS: the records that meet them, as they are */
    COUNT_FILTER = 2,     /* CONDITIONS: how many records meet them, an int64_t */
    SUM_FILTER = 3,       /* field, CONDITIONS: an int64_t of integers, else a double; none where there is no value */
    MIN_FILTER = 4,       /* the same; of CHAR, or a column of text, a text; of a bool an int64_t, 0 or 1 */
    MAX_FILTER = 5,       /* the same */
    AVG_FILTER = 6,       /* field, CONDITIONS: a double; none where there is no value */
    SQL_FILTER = 7,       /* "SELECT ..." of fields f1, f2 ..., or of the columns that lines have: see below */
    GREP_FILTER = 8       /* a regular expression, and if need be SMAS_FIXED | ...: lines of text; needs no records */
};

/*
 * SQL_FILTER gives records with SELECT *, else rows: selected fields as they are, one after the other, and for what is computed a
 * byte that is 1 (or 0, where there is no value), then a truth in one byte, an int64_t or a double, or for a text its length in
 * four bytes and the text, all with the least significant byte first. Groups are lines of text. A file that ends within a record, or has
 * one that can't be looked at, fails; records near it may not be had before.
 *
 * Of lines all rows are text, without line ends: with SELECT *, and SQLSELECT_FILTER, the lines as they are, else fields with the
 * format's delimiter between (of JSON a comma), and in quotes where need be. What has no value is empty, an empty text is "".
 */

/* Of GREP_FILTER. */
enum smas_grep { SMAS_FIXED = 1, SMAS_IGNORE_CASE = 2, SMAS_WORD = 4, SMAS_WHOLE_LINE = 8 };

/* Operators. */
enum smas_operator {
    EQUAL = 10,
    NOT_EQUAL = 11,
    LESS = 12,
    LESS_EQUAL = 13,
    GREATER = 14,
    GREATER_EQUAL = 15,
    LIKE = 16 /* a text with _ and % */
};

/* Between conditions. */
enum smas_junction { AND = 20, OR = 21 };

/* Opens a file by the flags of open(2): O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL, O_TRUNC, O_APPEND. -1: it failed. */
int smas_open(const char *path, int flags);

/* The same with the mode of a file that is made, before the process's mask; 0666 without. */
int smas_open_mode(const char *path, int flags, unsigned mode);

/* Closes a file; what was written is durable then. -1: it failed. */
int smas_close(int fd);

/*
 * As read(2), write(2), lseek(2) and fsync(2). What is written is kept by this process for a while, at most until fsync or close: a
 * program that ends without them loses it.
 */
ssize_t smas_read(int fd, void *buffer, size_t count);
ssize_t smas_write(int fd, const void *buffer, size_t count);
int64_t smas_lseek(int fd, int64_t offset, int whence);
int smas_fsync(int fd);

/*
 * The next record that the filter gives, into a buffer that has room for one: as many bytes as all fields together, or eight
 * of a number. Its bytes; 0 after the last one, and where it has failed, as smas_error() tells. Text and other rows need
 * smas_nextrecord_n.
 */
ssize_t smas_nextrecord(int fd, void *buffer);

/* The same into a buffer of that size. Text has a zero byte behind it, which counts. A record that has no room is kept. */
ssize_t smas_nextrecord_n(int fd, void *buffer, size_t size);

/*
 * Some of the next records, as many as have come and have room in a buffer of that size, one behind the other, at least one: their
 * bytes together; 0 as of the others. Each has to be as long as the others, as those of SQLSELECT_FILTER are. It spares a call
 * for each. Lines are refused: take them one by one.
 */
ssize_t smas_nextrecords(int fd, void *buffer, size_t size);

/* Why there are no more records: an error number, or 0 after the last one. */
int smas_error(int fd);

/* What has failed last in this thread, in words; good until the next call that fails in it. */
const char *smas_strerror(void);

/* An argument, as the following calls take them. */
struct smas_argument {
    int kind; /* 0: integer, 1: real, 2: text, 3: an integer that is too large */
    long long integer;
    double real;
    const char *text;
};

/*
 * Says what the records are: the kind of each field and its bytes, up to 1 GiB together. -1: it failed. What was said before, by
 * this call or the next one, is forgotten also then: filters are refused until it is said what the records are.
 */
int smas_recordstruct_n(int fd, size_t count, const struct smas_argument *arguments);

/*
 * Says what the lines of a file are: a format, and the columns as nasd scan --columns has them, NAME:TYPE with commas between. Types
 * are int, float and text, and in JSON bool. Queries call columns by these names, CONDITIONS by their numbers from 1. Those of CSV
 * and TSV are all that a line may have, in their order, whatever its first line calls them; those of JSON are members of the
 * object, in any order, and others are passed over. Where one is missing it has no value; a line of another form, or of more than
 * 1 MiB, fails. -1: it failed, and what was said before is forgotten.
 */
int smas_recordformat(int fd, int format, const char *columns);

/* Chooses a filter: which, and its arguments. It begins at the start of the file, wherever that is read. -1: it failed. */
int smas_usefilter_n(int fd, size_t count, const struct smas_argument *arguments);

#ifdef __cplusplus
}
#else

/* The same with the arguments as they are: integers, floats and texts, at most 40. */
#define smas_recordstruct(fd, ...) smas_recordstruct_n(fd, SMAS_ARGUMENTS(__VA_ARGS__))
#define smas_usefilter(fd, ...) smas_usefilter_n(fd, SMAS_ARGUMENTS(__VA_ARGS__))

static inline struct smas_argument smas_of_integer(long long value) {
    struct smas_argument argument = {0, value, 0, NULL};
    return argument;
}

static inline struct smas_argument smas_of_unsigned(unsigned long long value) {
    struct smas_argument argument = {value > INT64_MAX ? 3 : 0, (long long)value, 0, NULL};
    return argument;
}

static inline struct smas_argument smas_of_real(double value) {
    struct smas_argument argument = {1, 0, value, NULL};
    return argument;
}

static inline struct smas_argument smas_of_text(const char *value) {
    struct smas_argument argument = {2, 0, 0, value};
    return argument;
}

#define SMAS_ARGUMENT(x)                                                                                              \
    _Generic((x), char *: smas_of_text, const char *: smas_of_text, float: smas_of_real, double: smas_of_real,        \
             long double: smas_of_real, unsigned long: smas_of_unsigned, unsigned long long: smas_of_unsigned,        \
             default: smas_of_integer)(x)
#define SMAS_LIST(...) ((const struct smas_argument[]){SMAS_EACH(__VA_ARGS__)})
#define SMAS_ARGUMENTS(...) sizeof(SMAS_LIST(__VA_ARGS__)) / sizeof(struct smas_argument), SMAS_LIST(__VA_ARGS__)
#define SMAS_EACH(...) SMAS_PICK(__VA_ARGS__, SMAS_EACH_40, SMAS_EACH_39, SMAS_EACH_38, SMAS_EACH_37, SMAS_EACH_36, SMAS_EACH_35, SMAS_EACH_34, SMAS_EACH_33, SMAS_EACH_32, SMAS_EACH_31, SMAS_EACH_30, SMAS_EACH_29, SMAS_EACH_28, SMAS_EACH_27, SMAS_EACH_26, SMAS_EACH_25, SMAS_EACH_24, SMAS_EACH_23, SMAS_EACH_22, SMAS_EACH_21, SMAS_EACH_20, SMAS_EACH_19, SMAS_EACH_18, SMAS_EACH_17, SMAS_EACH_16, SMAS_EACH_15, SMAS_EACH_14, SMAS_EACH_13, SMAS_EACH_12, SMAS_EACH_11, SMAS_EACH_10, SMAS_EACH_9, SMAS_EACH_8, SMAS_EACH_7, SMAS_EACH_6, SMAS_EACH_5, SMAS_EACH_4, SMAS_EACH_3, SMAS_EACH_2, SMAS_EACH_1, )(__VA_ARGS__)
#define SMAS_PICK(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13, _14, _15, _16, _17, _18, _19, _20, _21, _22, _23, _24, _25, _26, _27, _28, _29, _30, _31, _32, _33, _34, _35, _36, _37, _38, _39, _40, picked, ...) picked
#define SMAS_EACH_1(x) SMAS_ARGUMENT(x)
#define SMAS_EACH_2(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_1(__VA_ARGS__)
#define SMAS_EACH_3(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_2(__VA_ARGS__)
#define SMAS_EACH_4(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_3(__VA_ARGS__)
#define SMAS_EACH_5(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_4(__VA_ARGS__)
#define SMAS_EACH_6(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_5(__VA_ARGS__)
#define SMAS_EACH_7(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_6(__VA_ARGS__)
#define SMAS_EACH_8(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_7(__VA_ARGS__)
#define SMAS_EACH_9(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_8(__VA_ARGS__)
#define SMAS_EACH_10(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_9(__VA_ARGS__)
#define SMAS_EACH_11(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_10(__VA_ARGS__)
#define SMAS_EACH_12(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_11(__VA_ARGS__)
#define SMAS_EACH_13(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_12(__VA_ARGS__)
#define SMAS_EACH_14(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_13(__VA_ARGS__)
#define SMAS_EACH_15(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_14(__VA_ARGS__)
#define SMAS_EACH_16(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_15(__VA_ARGS__)
#define SMAS_EACH_17(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_16(__VA_ARGS__)
#define SMAS_EACH_18(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_17(__VA_ARGS__)
#define SMAS_EACH_19(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_18(__VA_ARGS__)
#define SMAS_EACH_20(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_19(__VA_ARGS__)
#define SMAS_EACH_21(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_20(__VA_ARGS__)
#define SMAS_EACH_22(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_21(__VA_ARGS__)
#define SMAS_EACH_23(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_22(__VA_ARGS__)
#define SMAS_EACH_24(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_23(__VA_ARGS__)
#define SMAS_EACH_25(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_24(__VA_ARGS__)
#define SMAS_EACH_26(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_25(__VA_ARGS__)
#define SMAS_EACH_27(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_26(__VA_ARGS__)
#define SMAS_EACH_28(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_27(__VA_ARGS__)
#define SMAS_EACH_29(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_28(__VA_ARGS__)
#define SMAS_EACH_30(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_29(__VA_ARGS__)
#define SMAS_EACH_31(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_30(__VA_ARGS__)
#define SMAS_EACH_32(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_31(__VA_ARGS__)
#define SMAS_EACH_33(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_32(__VA_ARGS__)
#define SMAS_EACH_34(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_33(__VA_ARGS__)
#define SMAS_EACH_35(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_34(__VA_ARGS__)
#define SMAS_EACH_36(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_35(__VA_ARGS__)
#define SMAS_EACH_37(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_36(__VA_ARGS__)
#define SMAS_EACH_38(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_37(__VA_ARGS__)
#define SMAS_EACH_39(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_38(__VA_ARGS__)
#define SMAS_EACH_40(x, ...) SMAS_ARGUMENT(x), SMAS_EACH_39(__VA_ARGS__)

#endif /* __cplusplus */

#endif /* SMAS_H */
