/*
 * What the compiled code of record batches (magic 2, KIP-98) shares: numbers, checksums, and a batch being filled.
 *
 * It needs nothing of Python, so one build serves all versions. All input is untrusted: no byte is read or written
 * outside the given areas.
 */
#ifndef MM2PY_RECORDS_H
#define MM2PY_RECORDS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HEADER 61
#define OVERHEAD 12
#define CODEC 0x07
#define LOG_APPEND_TIME 0x08
#define CONTROL 0x20

enum { OK = 0, NOT_FOR_US = 1, BAD_CHECKSUM = 2, MALFORMED = 3, NO_ROOM = 4 };

/* What is known of a finished batch; as the Python side reads it. */
struct built {
    int64_t start, size, records, max_timestamp, first_run, runs;
};
struct run {
    int64_t upstream, index, records;
};
struct outcome {
    int64_t status, offset, batches, runs, used;
};

/* The batch being filled. */
struct filling {
    uint8_t *out;
    int64_t room, limit;
    struct built *built;
    struct run *runs;
    int64_t most_batches, most_runs;
    struct outcome *outcome;
    uint8_t *start, *at;
    int64_t first_timestamp, max_timestamp, records, first_run, expected;
};

uint32_t mm2py_crc32c(const uint8_t *p, int64_t size);

/* Finish the batch being filled, if it has records. */
void mm2py_close_batch(struct filling *to);

/*
 * Begin the next record, whose part from the key on has *rest_size* bytes; that part is to be written to *rest*. The
 * record is the first of another batch where the batch being filled would become too large.
 */
int mm2py_add_record(struct filling *to, int64_t offset, int64_t timestamp, uint8_t attributes, int64_t rest_size,
                     uint8_t **rest);

/* Big-endian numbers. */

static inline uint32_t get32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline uint64_t get64(const uint8_t *p) {
    return (uint64_t)get32(p) << 32 | get32(p + 4);
}

static inline void put32(uint8_t *p, uint32_t value) {
    p[0] = (uint8_t)(value >> 24);
    p[1] = (uint8_t)(value >> 16);
    p[2] = (uint8_t)(value >> 8);
    p[3] = (uint8_t)value;
}

static inline void put64(uint8_t *p, uint64_t value) {
    put32(p, (uint32_t)(value >> 32));
    put32(p + 4, (uint32_t)value);
}

/* Zigzag numbers of variable length. */

static inline int read_number(const uint8_t **at, const uint8_t *end, int longest, int64_t *value) {
    uint64_t raw = 0;
    const uint8_t *p = *at;
    for (int n = 0; n < longest; n++) {
        if (p == end) return 0;
        uint8_t byte = *p++;
        raw |= (uint64_t)(byte & 0x7F) << 7 * n;
        if (!(byte & 0x80)) {
            *at = p;
            *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return 1;
        }
    }
    return 0;
}

static inline int number_size(int64_t value) {
    uint64_t raw = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
    int size = 1;
    while (raw >= 0x80) {
        raw >>= 7;
        size++;
    }
    return size;
}

static inline uint8_t *write_number(uint8_t *p, int64_t value) {
    uint64_t raw = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
    while (raw >= 0x80) {
        *p++ = (uint8_t)(raw | 0x80);
        raw >>= 7;
    }
    *p++ = (uint8_t)raw;
    return p;
}

/* The records of a batch, from one to the next: *left* of them, of which the next one begins at *at*. */
struct reading {
    const uint8_t *at, *end;
    int64_t base, first_timestamp, max_timestamp;
    int attributes;
    int32_t left;
};

/* A record; *rest* is its part from the key on. */
struct record {
    int64_t offset, timestamp;
    uint8_t attributes;
    const uint8_t *rest, *end;
};

/* Begin to read the batch at *batch*, which has *size* bytes, all of them there. */
static inline struct reading reading_of(const uint8_t *batch, int64_t size) {
    int32_t records = (int32_t)get32(batch + 57);
    struct reading from = {batch + HEADER, batch + size, (int64_t)get64(batch), (int64_t)get64(batch + 27),
                           (int64_t)get64(batch + 35), batch[22], records > 0 ? records : 0};
    return from;
}

static inline int is_intact(const uint8_t *batch, int64_t size) {
    return mm2py_crc32c(batch + 21, size - 21) == get32(batch + 17);
}

/* Read the next record up to its key, and go on behind it. */
static inline int read_record(struct reading *from, struct record *found) {
    int64_t length, since, delta;
    if (!read_number(&from->at, from->end, 5, &length) || length < 1 || length > from->end - from->at) return 0;
    found->end = from->at + length;
    found->attributes = *from->at++;
    if (!read_number(&from->at, found->end, 10, &since) || !read_number(&from->at, found->end, 5, &delta)) return 0;
    found->rest = from->at;
    found->offset = (int64_t)((uint64_t)from->base + (uint64_t)delta);
    found->timestamp = from->max_timestamp;
    if (!(from->attributes & LOG_APPEND_TIME))
        found->timestamp = (int64_t)((uint64_t)from->first_timestamp + (uint64_t)since);
    from->at = found->end;
    from->left--;
    /* No attributes of records are defined; aiokafka, which reads them as a number, refuses these too. */
    return !(found->attributes & 0x80);
}

/* Pass over a length and as many bytes; a null only where it is allowed. */
static inline int skip_bytes(const uint8_t **at, const uint8_t *end, int64_t least) {
    int64_t size;
    if (!read_number(at, end, 5, &size) || size < least || size > end - *at) return 0;
    if (size > 0) *at += size;
    return 1;
}

/* Whether key, value and headers fill the record exactly. */
static inline int is_whole(const uint8_t *at, const uint8_t *end) {
    int64_t headers;
    if (!skip_bytes(&at, end, -1) || !skip_bytes(&at, end, -1)) return 0;
    if (!read_number(&at, end, 5, &headers) || headers < 0) return 0;
    while (headers--)
        if (!skip_bytes(&at, end, 0) || !skip_bytes(&at, end, -1)) return 0;
    return at == end;
}

#endif
