/* Every call and every filter; what is wrong is printed with its line. */
#include <errno.h>
#include <smas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_PATH "main:/records"
#define TEXT_PATH "main:/text"

static int wrong;

#define CHECK(what)                                                                                                  \
    do {                                                                                                              \
        if (!(what)) {                                                                                                \
            printf("line %d: %s (errno %d: %s)\n", __LINE__, #what, errno, smas_strerror());                          \
            wrong = 1;                                                                                                \
        }                                                                                                             \
    } while (0)

struct record {
    int32_t number;
    char name[12];
    double price;
};

enum { RECORDS = 1000 };

static void make_records(void) {
    int fd = smas_open_mode(FILE_PATH, O_RDWR | O_CREAT | O_EXCL, 0640);
    CHECK(fd >= 0);
    for (int i = 0; i < RECORDS; i++) {
        struct record record = {i - 500, "", i / 4.0};
        snprintf(record.name, sizeof record.name, i % 2 ? "odd%d" : "even%d", i);
        CHECK(smas_write(fd, &record, sizeof record) == sizeof record);
    }
    CHECK(smas_fsync(fd) == 0);
    struct record third;
    CHECK(smas_lseek(fd, 3 * sizeof third, SEEK_SET) == 3 * sizeof third);
    CHECK(smas_read(fd, &third, sizeof third) == sizeof third);
    CHECK(third.number == -497 && strcmp(third.name, "odd3") == 0);
    CHECK(smas_lseek(fd, 0, SEEK_END) == RECORDS * sizeof third);
    CHECK(smas_read(fd, &third, sizeof third) == 0);
    CHECK(smas_close(fd) == 0);
}

static int records(void) {
    int fd = smas_open(FILE_PATH, O_RDONLY);
    CHECK(fd >= 0);
    CHECK(smas_recordstruct(fd, INT, 4, CHAR, 12, FLOAT, 8) == 0);
    return fd;
}

static void select_records(void) {
    int fd = records();
    struct record record;
    CHECK(smas_usefilter(fd, SQLSELECT_FILTER, 1, GREATER_EQUAL, 490, AND, 2, LIKE, "odd%") == 0);
    for (int number = 491; number < 500; number += 2) {
        CHECK(smas_nextrecord(fd, &record) == sizeof record);
        CHECK(record.number == number && record.price == (number + 500) / 4.0);
    }
    CHECK(smas_nextrecord(fd, &record) == 0 && smas_error(fd) == 0);
    CHECK(smas_nextrecord(fd, &record) == 0 && smas_error(fd) == 0);
    /* Left to right: (number = -500 or number = 3) and price > 1.5. */
    CHECK(smas_usefilter(fd, SQLSELECT_FILTER, 1, EQUAL, -500, OR, 1, EQUAL, 3, AND, 3, GREATER, 1.5) == 0);
    CHECK(smas_nextrecord_n(fd, &record, 3) == 0 && smas_error(fd) == ERANGE);
    CHECK(strstr(smas_strerror(), "24 bytes") != NULL);
    CHECK(smas_nextrecord_n(fd, &record, sizeof record) == sizeof record && record.number == 3);
    CHECK(smas_nextrecord(fd, &record) == 0 && smas_error(fd) == 0);
    CHECK(smas_usefilter(fd, SQLSELECT_FILTER) == 0);
    int all = 0;
    while (smas_nextrecord(fd, &record) != 0)
        all++;
    CHECK(all == RECORDS && smas_error(fd) == 0);
    CHECK(smas_close(fd) == 0);
}

/* Several at a time, between others. */
static void many_records(void) {
    int fd = records();
    struct record some[7];
    CHECK(smas_usefilter(fd, SQLSELECT_FILTER) == 0);
    CHECK(smas_nextrecord(fd, some) == sizeof *some && some->number == -500);
    CHECK(smas_nextrecords(fd, some, sizeof *some - 1) == 0 && smas_error(fd) == ERANGE);
    int next = -499;
    ssize_t bytes;
    while ((bytes = smas_nextrecords(fd, some, sizeof some - 1)) != 0) {
        CHECK(bytes > 0 && bytes % sizeof *some == 0 && bytes < (ssize_t)sizeof some);
        for (size_t i = 0; i < bytes / sizeof *some; i++)
            CHECK(some[i].number == next++);
    }
    CHECK(next == 500 && smas_error(fd) == 0);
    CHECK(smas_nextrecords(fd, some, sizeof some) == 0 && smas_error(fd) == 0);
    CHECK(smas_usefilter(fd, COUNT_FILTER) == 0);
    CHECK(smas_nextrecords(fd, some, sizeof some) == 0 && smas_error(fd) == EINVAL);
    CHECK(smas_close(fd) == 0);
}

/* Of a file of several parts, as many at a time as there is room for, from the first one on. */
static void records_of_parts(void) {
    enum { MANY = 500000 };
    static struct record some[16384];
    static const size_t room[] = {sizeof *some, 7 * sizeof *some + 5, sizeof some};
    int fd = smas_open("main:/parts", O_RDWR | O_CREAT | O_EXCL);
    for (int number = 0; number < MANY; number++) {
        some[number % 1000] = (struct record){.number = number};
        if (number % 1000 == 999)
            CHECK(smas_write(fd, some, 1000 * sizeof *some) == (ssize_t)(1000 * sizeof *some));
    }
    CHECK(smas_recordstruct(fd, INT, 4, CHAR, 12, FLOAT, 8) == 0);
    /* All of them, which are read here in the end, and half of them, which drives tell. */
    for (int first = 0; first < MANY; first += MANY / 2) {
        CHECK(smas_usefilter(fd, SQLSELECT_FILTER, 1, GREATER_EQUAL, first) == 0);
        int next = first, turn = 0;
        ssize_t bytes;
        while ((bytes = smas_nextrecords(fd, some, room[turn++ % 3])) > 0)
            for (size_t i = 0; i < bytes / sizeof *some; i++)
                CHECK(some[i].number == next++);
        CHECK(next == MANY && smas_error(fd) == 0);
    }
    CHECK(smas_close(fd) == 0);
}

/* What was appended a moment ago is there, whoever asks first. */
static void appended_records(void) {
    int64_t count = 0;
    int32_t numbers[3] = {1, 2, 3};
    int fd = smas_open("main:/appended", O_RDWR | O_CREAT | O_EXCL | O_APPEND);
    CHECK(smas_recordstruct(fd, INT, 4) == 0);
    for (int64_t times = 1; times <= 3; times++) {
        CHECK(smas_write(fd, numbers, sizeof numbers) == sizeof numbers);
        CHECK(smas_usefilter(fd, COUNT_FILTER) == 0);
        CHECK(smas_nextrecord(fd, &count) == 8 && count == 3 * times);
    }
    CHECK(smas_write(fd, numbers, 4) == 4 && smas_lseek(fd, 0, SEEK_CUR) == 40);
    CHECK(smas_write(fd, numbers, 4) == 4 && smas_lseek(fd, -4, SEEK_END) == 40);
    CHECK(smas_write(fd, numbers, 4) == 4 && smas_read(fd, numbers, 4) == 0);
    CHECK(smas_close(fd) == 0);
}

/* A file that ends within a record fails, however often it is asked. */
static void cut_record(void) {
    char bytes[10];
    int32_t number;
    int fd = smas_open("main:/cut", O_RDWR | O_CREAT | O_APPEND);
    CHECK(smas_write(fd, "\1\0\0\0\2\0\0\0", 8) == 8);
    CHECK(smas_lseek(fd, 0, SEEK_SET) == 0);
    CHECK(smas_write(fd, "\3\0", 2) == 2);
    CHECK(smas_lseek(fd, 0, SEEK_SET) == 0);
    CHECK(smas_read(fd, bytes, sizeof bytes) == 10 && memcmp(bytes, "\1\0\0\0\2\0\0\0\3\0", 10) == 0);
    CHECK(smas_recordstruct(fd, INT, 4) == 0);
    CHECK(smas_usefilter(fd, SQLSELECT_FILTER) == 0);
    CHECK(smas_nextrecord(fd, &number) == 0 && smas_error(fd) == EIO);
    CHECK(smas_nextrecord(fd, &number) == 0 && smas_error(fd) == EIO);
    CHECK(smas_usefilter(fd, COUNT_FILTER) == 0);
    CHECK(smas_nextrecord(fd, &number) == 0 && smas_error(fd) == EIO);
    CHECK(smas_close(fd) == 0);
    fd = smas_open("main:/cut", O_RDWR | O_TRUNC);
    CHECK(smas_lseek(fd, 0, SEEK_END) == 0 && smas_close(fd) == 0);
}

static void aggregates(void) {
    int fd = records();
    int64_t integer = 0;
    double real = 0;
    char text[64];
    CHECK(smas_usefilter(fd, COUNT_FILTER) == 0);
    CHECK(smas_nextrecord(fd, &integer) == 8 && integer == RECORDS);
    CHECK(smas_nextrecord(fd, &integer) == 0 && smas_error(fd) == 0);
    CHECK(smas_usefilter(fd, COUNT_FILTER, 1, LESS, 0) == 0);
    CHECK(smas_nextrecord(fd, &integer) == 8 && integer == 500);
    CHECK(smas_usefilter(fd, SUM_FILTER, 1) == 0);
    CHECK(smas_nextrecord(fd, &integer) == 8 && integer == -500);
    CHECK(smas_usefilter(fd, MIN_FILTER, 1, 2, LIKE, "odd%") == 0);
    CHECK(smas_nextrecord(fd, &integer) == 8 && integer == -499);
    CHECK(smas_usefilter(fd, MAX_FILTER, 3) == 0);
    CHECK(smas_nextrecord(fd, &real) == 8 && real == 249.75);
    CHECK(smas_usefilter(fd, AVG_FILTER, 3, 1, LESS, -498) == 0);
    CHECK(smas_nextrecord(fd, &real) == 8 && real == 0.125);
    CHECK(smas_usefilter(fd, MIN_FILTER, 1, 1, GREATER, 1000) == 0);
    CHECK(smas_nextrecord(fd, &integer) == 0 && smas_error(fd) == 0);
    CHECK(smas_usefilter(fd, MAX_FILTER, 2) == 0);
    CHECK(smas_nextrecord(fd, text) == 0 && smas_error(fd) == EINVAL);
    CHECK(smas_nextrecord_n(fd, text, sizeof text) == 7 && strcmp(text, "odd999") == 0);
    CHECK(smas_close(fd) == 0);
}

static void queries(void) {
    int fd = records();
    char text[64];
    struct {
        int32_t number;
        double price;
    } __attribute__((packed)) row;
    CHECK(smas_usefilter(fd, SQL_FILTER, "SELECT f1, f3 FROM records WHERE f1 BETWEEN 7 AND 8") == 0);
    CHECK(smas_nextrecord(fd, &row) == 0 && smas_error(fd) == EINVAL);
    CHECK(smas_nextrecord_n(fd, &row, sizeof row) == sizeof row && row.number == 7 && row.price == 126.75);
    CHECK(smas_nextrecord_n(fd, &row, sizeof row) == sizeof row && row.number == 8);
    CHECK(smas_nextrecord_n(fd, &row, sizeof row) == 0 && smas_error(fd) == 0);
    CHECK(smas_nextrecord(fd, &row) == 0 && smas_error(fd) == 0);
    CHECK(smas_usefilter(fd, SQL_FILTER, "SELECT f1 * 2 FROM records WHERE f1 = 3") == 0);
    CHECK(smas_nextrecord_n(fd, text, sizeof text) == 9 && memcmp(text, "\1\6\0\0\0\0\0\0\0", 9) == 0);
    CHECK(smas_usefilter(fd, SQL_FILTER,
                         "SELECT f1 % 2 AS rest, count(*) FROM records WHERE f1 >= 0 GROUP BY f1 % 2") == 0);
    CHECK(smas_nextrecord_n(fd, text, sizeof text) == 6 && strcmp(text, "0,250") == 0);
    CHECK(smas_nextrecord_n(fd, text, sizeof text) == 6 && strcmp(text, "1,250") == 0);
    CHECK(smas_nextrecord_n(fd, text, sizeof text) == 0 && smas_error(fd) == 0);
    CHECK(smas_usefilter(fd, SQL_FILTER, "SELECT f1 % 4 AS rest FROM records GROUP BY rest ORDER BY max(f1) DESC LIMIT 2") == 0);
    CHECK(smas_nextrecord_n(fd, text, sizeof text) == 2 && strcmp(text, "3") == 0);
    CHECK(smas_nextrecord_n(fd, text, sizeof text) == 2 && strcmp(text, "2") == 0);
    CHECK(smas_nextrecord_n(fd, text, sizeof text) == 0 && smas_error(fd) == 0);
    CHECK(smas_usefilter(fd, SQL_FILTER, "SELECT * FROM records ORDER BY f3 DESC LIMIT 2") == 0);
    struct record record;
    CHECK(smas_nextrecord(fd, &record) == sizeof record && record.number == 499);
    CHECK(smas_nextrecord(fd, &record) == sizeof record && record.number == 498);
    CHECK(smas_nextrecord(fd, &record) == 0 && smas_error(fd) == 0);
    CHECK(smas_close(fd) == 0);
}

static void lines(void) {
    static const char text[] = "one\n\nTwo 2\nthree\ntwo";
    char line[16];
    int fd = smas_open(TEXT_PATH, O_WRONLY | O_CREAT);
    CHECK(fd >= 0 && smas_write(fd, text, sizeof text - 1) == sizeof text - 1);
    CHECK(smas_read(fd, line, 1) == -1 && errno == EBADF);
    CHECK(smas_close(fd) == 0);
    fd = smas_open(TEXT_PATH, O_RDONLY);
    CHECK(smas_usefilter(fd, GREP_FILTER, "^two|^$", SMAS_IGNORE_CASE) == 0);
    CHECK(smas_nextrecord_n(fd, line, sizeof line) == 1 && strcmp(line, "") == 0);
    CHECK(smas_nextrecord_n(fd, line, sizeof line) == 6 && strcmp(line, "Two 2") == 0);
    CHECK(smas_nextrecord_n(fd, line, sizeof line) == 4 && strcmp(line, "two") == 0);
    CHECK(smas_nextrecord_n(fd, line, sizeof line) == 0 && smas_error(fd) == 0);
    CHECK(smas_close(fd) == 0);
}

static int written(const char *path, const char *text) {
    int fd = smas_open(path, O_RDWR | O_CREAT | O_EXCL);
    CHECK(fd >= 0 && smas_write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    return fd;
}

/* What a filter that was chosen gives: these lines and no others. */
static void expect(int fd, int line, const char *const *expected) {
    char text[80];
    for (; *expected != NULL; expected++) {
        ssize_t bytes = smas_nextrecord_n(fd, text, sizeof text);
        if (bytes != (ssize_t)strlen(*expected) + 1 || strcmp(text, *expected) != 0) {
            printf("line %d: %s instead of %s\n", line, bytes == 0 ? smas_strerror() : text, *expected);
            wrong = 1;
        }
    }
    CHECK(smas_nextrecord_n(fd, text, sizeof text) == 0 && smas_error(fd) == 0);
}

#define EXPECT(...) expect(fd, __LINE__, (const char *const[]){__VA_ARGS__, NULL})

static void delimited_text(void) {
    static const char text[] = "number,cost,city\n7,0.5,Patras\r\n8,1.5,\"Athens, \"\"north\"\"\"\n9,,Volos\n10,4";
    int64_t number = 0;
    char row[8];
    int fd = written("main:/trips.csv", text);
    CHECK(smas_recordformat(fd, CSV_FORMAT, "id:int, price:float,city:text") == 0);
    CHECK(smas_usefilter(fd, SQL_FILTER, "SELECT city, id * 2 FROM trips WHERE price > 0.5 OR price IS NULL") == 0);
    EXPECT("\"Athens, \"\"north\"\"\",16", "Volos,18", ",20");
    CHECK(smas_usefilter(fd, SQL_FILTER, "SELECT * FROM trips WHERE id < 9") == 0);
    CHECK(smas_nextrecord(fd, row) == 0 && smas_error(fd) == EINVAL);
    CHECK(smas_nextrecord_n(fd, row, sizeof row) == 0 && smas_error(fd) == ERANGE);
    EXPECT("7,0.5,Patras", "8,1.5,\"Athens, \"\"north\"\"\"");
    CHECK(smas_usefilter(fd, SQL_FILTER, "SELECT count(*), sum(price) FROM trips") == 0);
    EXPECT("4,6.0");
    CHECK(smas_usefilter(fd, SQLSELECT_FILTER, 1, GREATER, 8, AND, 3, LIKE, "V%") == 0);
    EXPECT("9,,Volos");
    CHECK(smas_usefilter(fd, SUM_FILTER, 1, 2, LESS, 2) == 0);
    CHECK(smas_nextrecord(fd, &number) == 8 && number == 15);
    CHECK(smas_nextrecord(fd, &number) == 0 && smas_error(fd) == 0);
    /* The first line has no number, and other lines more than one field. */
    CHECK(smas_recordformat(fd, CSV_FORMAT | SMAS_NO_HEADER, "id:int,price:float,city:text") == 0);
    CHECK(smas_usefilter(fd, SQL_FILTER, "SELECT id FROM trips") == 0);
    CHECK(smas_nextrecord_n(fd, row, sizeof row) == 0 && smas_error(fd) == EIO);
    CHECK(smas_recordformat(fd, CSV_FORMAT, "id:int") == 0);
    CHECK(smas_usefilter(fd, COUNT_FILTER) == 0);
    CHECK(smas_nextrecord(fd, &number) == 0 && smas_error(fd) == EIO);
    CHECK(smas_close(fd) == 0);
    fd = written("main:/trips.tsv", "1\ta,b\n2\t\n");
    CHECK(smas_recordformat(fd, TSV_FORMAT | SMAS_NO_HEADER, "id:int,name:text") == 0);
    CHECK(smas_usefilter(fd, SQL_FILTER, "SELECT name, id FROM trips") == 0);
    EXPECT("a,b\t1", "\t2");
    CHECK(smas_usefilter(fd, SQL_FILTER, "SELECT name, count(*) FROM trips GROUP BY name") == 0);
    EXPECT("a,b\t1", "\t1");
    CHECK(smas_close(fd) == 0);
}

/* Booleans in conditions, and by themselves: of three lines one says true, one false, and one nothing. */
static void booleans(int fd) {
    static const char new[] = "{\"name\": \"\\u03b2, two\", \"id\": 2, \"price\": 2.5, \"is_new\": true}";
    static const char old[] = "{\"id\": 3, \"is_new\": false, \"name\": \"\"}";
    int64_t number = 7;
    CHECK(smas_usefilter(fd, SQLSELECT_FILTER, 1, EQUAL, 1) == 0);
    EXPECT(new);
    CHECK(smas_usefilter(fd, SQLSELECT_FILTER, 1, LESS, 1, OR, 2, EQUAL, 9) == 0);
    EXPECT(old);
    CHECK(smas_usefilter(fd, COUNT_FILTER, 1, NOT_EQUAL, 0) == 0);
    CHECK(smas_nextrecord(fd, &number) == 8 && number == 1);
    CHECK(smas_usefilter(fd, MIN_FILTER, 1) == 0);
    CHECK(smas_nextrecord(fd, &number) == 8 && number == 0);
    CHECK(smas_usefilter(fd, MAX_FILTER, 1) == 0);
    CHECK(smas_nextrecord(fd, &number) == 8 && number == 1);
    CHECK(smas_usefilter(fd, SUM_FILTER, 1) == -1 && errno == EINVAL);
    CHECK(smas_usefilter(fd, COUNT_FILTER, 1, EQUAL, 2) == -1 && errno == EINVAL);
    CHECK(strstr(smas_strerror(), "compare it with 0 or 1") != NULL);
    CHECK(smas_usefilter(fd, COUNT_FILTER, 1, EQUAL, "true") == -1 && errno == EINVAL);
}

static void lines_of_json(void) {
    static const char text[] = "{\"id\": 1, \"name\": \"one\", \"more\": [1]}\n"
                               "{\"name\": \"\\u03b2, two\", \"id\": 2, \"price\": 2.5, \"is_new\": true}\n\n"
                               "{\"id\": 3, \"is_new\": false, \"name\": \"\"}\n";
    int fd = written("main:/trips.jsonl", text);
    CHECK(smas_recordformat(fd, JSON_FORMAT, "id:int,price:float,name:text") == 0);
    CHECK(smas_usefilter(fd, SQL_FILTER, "SELECT name, price, id FROM trips") == 0);
    EXPECT("one,,1", "\"\xce\xb2, two\",2.5,2", "\"\",,3");
    CHECK(smas_usefilter(fd, SQL_FILTER, "SELECT * FROM trips WHERE price IS NULL AND id > 1") == 0);
    EXPECT("{\"id\": 3, \"is_new\": false, \"name\": \"\"}");
    CHECK(smas_usefilter(fd, SQL_FILTER, "SELECT max(price) FROM trips") == 0);
    EXPECT("2.5");
    CHECK(smas_recordformat(fd, JSON_FORMAT, "is_new:bool,id:int") == 0);
    CHECK(smas_usefilter(fd, SQL_FILTER, "SELECT id, is_new FROM trips WHERE is_new") == 0);
    EXPECT("2,true");
    booleans(fd);
    CHECK(smas_close(fd) == 0);
}

/* Formats and columns that there are not; who goes on all the same is told why. */
static void wrong_formats(void) {
    static const char *const columns[] = {"", "id", "id:i32", "id:int,", ":int", "id:int,id:text", "id:bool", "\xff:int", NULL};
    int64_t number;
    int fd = written("main:/none.csv", "id\n1\n");
    CHECK(smas_usefilter(fd, COUNT_FILTER) == -1 && errno == EINVAL);
    CHECK(strstr(smas_strerror(), "smas_recordformat") != NULL);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        errno = 0;
        CHECK(smas_recordformat(fd, CSV_FORMAT, columns[i]) == -1 && errno == EINVAL);
        CHECK(strstr(smas_strerror(), "column") != NULL);
        CHECK(smas_nextrecord(fd, &number) == 0 && smas_error(fd) == EINVAL);
    }
    static const int formats[] = {0, 4, -1, SMAS_NO_HEADER, JSON_FORMAT | SMAS_NO_HEADER, CSV_FORMAT | 32};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        errno = 0;
        CHECK(smas_recordformat(fd, formats[i], "id:int") == -1 && errno == EINVAL);
        CHECK(strstr(smas_strerror(), "format") != NULL);
    }
    CHECK(smas_recordformat(7, CSV_FORMAT, "id:int") == -1 && errno == EBADF);
    CHECK(smas_recordformat(fd, CSV_FORMAT, "id:int") == 0);
    CHECK(smas_usefilter(fd, SQL_FILTER, "SELECT f1 FROM f") == -1 && errno == EINVAL);
    CHECK(smas_usefilter(fd, COUNT_FILTER, 2, EQUAL, 1) == -1 && errno == EINVAL);
    CHECK(smas_usefilter(fd, COUNT_FILTER, 1, EQUAL, 1) == 0);
    CHECK(smas_nextrecord(fd, &number) == 8 && number == 1);
    CHECK(smas_close(fd) == 0);
}

/* Who does not look at what a call answers gets nothing that was chosen before: it is told why. */
static void refused(int fd, int line, const char *why) {
    int64_t number;
    if (smas_nextrecord(fd, &number) != 0 || smas_error(fd) != EINVAL || strstr(smas_strerror(), why) == NULL) {
        printf("line %d: goes on, or for another reason than `%s`: %s\n", line, why, smas_strerror());
        wrong = 1;
    }
}

#define REFUSED(why, call)                                                                                            \
    do {                                                                                                              \
        CHECK(smas_recordstruct(fd, INT, 4, CHAR, 12, FLOAT, 8) == 0);                                                \
        CHECK(smas_usefilter(fd, COUNT_FILTER) == 0);                                                                 \
        CHECK((call) == -1 && errno == EINVAL);                                                                       \
        refused(fd, __LINE__, why);                                                                                   \
    } while (0)

static void refusals_after_a_filter(void) {
    static const struct smas_argument odd[] = {{9, 0, 0, NULL}};
    static struct smas_argument many[4097];
    int fd = smas_open(FILE_PATH, O_RDONLY);
    REFUSED("9223372036854775808", smas_usefilter(fd, SQLSELECT_FILTER, 1, GREATER, 1ull << 63));
    REFUSED("a text is missing", smas_usefilter(fd, SQL_FILTER, (const char *)NULL));
    REFUSED("the arguments are missing", smas_usefilter_n(fd, 1, NULL));
    REFUSED("4097 arguments: there may be 4096", smas_usefilter_n(fd, 4097, many));
    REFUSED("an argument of kind 9", smas_usefilter_n(fd, 1, odd));
    REFUSED("above", smas_recordstruct(fd, INT, 1ull << 63));
    REFUSED("the arguments are missing", smas_recordstruct_n(fd, 2, NULL));
    REFUSED("4097 arguments: there may be 4096", smas_recordstruct_n(fd, 4097, many));
    REFUSED("INT of 260 bytes: it has 1, 2, 4 or 8", smas_recordstruct(fd, INT, 260));
    REFUSED("CHAR of -1 bytes: it has 1 to 1073741824", smas_recordstruct(fd, CHAR, -1));
    REFUSED("the size of INT is missing", smas_recordstruct(fd, INT));
    REFUSED("the size of INT is no integer", smas_recordstruct(fd, INT, 4.0));
    REFUSED("a record of 2000000000 bytes", smas_recordstruct(fd, CHAR, 2000000000));
    REFUSED("a record of 1073741825 bytes", smas_recordstruct(fd, CHAR, 1 << 30, INT, 1));
    REFUSED("columns", smas_recordformat(fd, CSV_FORMAT, NULL));
    CHECK(smas_recordstruct(fd, CHAR, 1 << 30) == 0);
    /* What the records were is forgotten then. */
    REFUSED("", smas_recordstruct(fd, INT, 3));
    CHECK(smas_usefilter(fd, COUNT_FILTER) == -1 && errno == EINVAL);
    refused(fd, __LINE__, "say what the file's records are first");
    REFUSED("", smas_recordformat(fd, CSV_FORMAT, "id"));
    CHECK(smas_usefilter(fd, COUNT_FILTER) == -1 && errno == EINVAL);
    refused(fd, __LINE__, "say what the file's records are first");
    CHECK(smas_close(fd) == 0);
}

static void refusals(void) {
    int64_t number;
    CHECK(smas_open("nowhere", O_RDONLY) == -1 && errno == EINVAL);
    CHECK(smas_open("main:/missing", O_RDONLY) == -1 && errno == ENOENT);
    CHECK(strstr(smas_strerror(), "main:/missing") != NULL);
    CHECK(smas_open("main:/", O_RDONLY) == -1 && errno == EISDIR);
    CHECK(smas_open(NULL, O_RDONLY) == -1 && errno == EINVAL);
    CHECK(smas_open_mode(FILE_PATH, O_RDWR | O_CREAT | O_EXCL, 0600) == -1 && errno == EEXIST);
    CHECK(smas_close(7) == -1 && errno == EBADF);
    CHECK(smas_nextrecord(7, &number) == 0 && smas_error(7) == EBADF);
    int fd = smas_open(FILE_PATH, O_RDONLY);
    CHECK(smas_nextrecord(fd, &number) == 0 && smas_error(fd) == EINVAL);
    CHECK(smas_usefilter(fd, SQLSELECT_FILTER, 1, GREATER, 10) == -1 && errno == EINVAL);
    CHECK(smas_recordstruct(fd, INT, 3) == -1 && errno == EINVAL);
    CHECK(smas_recordstruct(fd, INT) == -1 && errno == EINVAL);
    CHECK(smas_recordstruct(fd, INT, 4, CHAR, 12, FLOAT, 8) == 0);
    CHECK(smas_usefilter(fd, SQLSELECT_FILTER, 4, GREATER, 10) == -1 && errno == EINVAL);
    CHECK(smas_usefilter(fd, SQLSELECT_FILTER, 0, GREATER, 10) == -1 && errno == EINVAL);
    CHECK(smas_usefilter(fd, SQLSELECT_FILTER, 1, 99, 10) == -1 && errno == EINVAL);
    CHECK(smas_usefilter(fd, SQLSELECT_FILTER, 1, GREATER) == -1 && errno == EINVAL);
    CHECK(smas_usefilter(fd, SQLSELECT_FILTER, 1, GREATER, "ten") == -1 && errno == EINVAL);
    CHECK(smas_usefilter(fd, SQL_FILTER, "SELEC") == -1 && errno == EINVAL);
    CHECK(smas_usefilter(fd, GREP_FILTER, "(") == -1 && errno == EINVAL);
    CHECK(smas_usefilter(fd, 99) == -1 && errno == EINVAL);
    CHECK(smas_usefilter(fd, GREP_FILTER, "x", 0, 1) == -1 && errno == EINVAL);
    CHECK(smas_usefilter(fd, GREP_FILTER, "x", 16) == -1 && errno == EINVAL);
    CHECK(smas_usefilter(fd, SQL_FILTER, "SELECT * FROM f", 1) == -1 && errno == EINVAL);
    CHECK(smas_usefilter(fd, SQLSELECT_FILTER, 1, GREATER, 1ull << 63) == -1 && errno == EINVAL);
    /* Who goes on all the same is told what was wrong with the filter. */
    CHECK(smas_usefilter(fd, SQLSELECT_FILTER, 9, GREATER, 10) == -1);
    CHECK(smas_nextrecord(fd, &number) == 0 && smas_error(fd) == EINVAL);
    CHECK(strstr(smas_strerror(), "no field 9") != NULL);
    CHECK(smas_open(FILE_PATH, O_RDONLY | O_DIRECTORY) == -1 && errno == EINVAL);
    CHECK(smas_usefilter_n(fd, 3, NULL) == -1 && errno == EINVAL);
    CHECK(smas_write(fd, "x", 1) == -1 && errno == EBADF);
    CHECK(smas_lseek(fd, -1, SEEK_SET) == -1 && errno == EINVAL);
    CHECK(smas_lseek(fd, 0, 99) == -1 && errno == EINVAL);
    CHECK(smas_close(fd) == 0);
    CHECK(smas_close(fd) == -1 && errno == EBADF);
}

int main(void) {
    make_records();
    select_records();
    many_records();
    records_of_parts();
    appended_records();
    cut_record();
    aggregates();
    queries();
    lines();
    delimited_text();
    lines_of_json();
    wrong_formats();
    refusals();
    refusals_after_a_filter();
    puts(wrong ? "wrong" : "right");
    return wrong;
}
