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

#endif
