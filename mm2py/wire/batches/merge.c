/*
 * Puts the records of uncompressed record batches (magic 2, KIP-98) into new batches, without making them objects.
 *
 * It does what mm2py/wire/batches/rebuild.py does with the codec "none", and is called by merging.py, which explains
 * the arguments. It needs nothing of Python, so one build serves all versions. All input is untrusted: no byte is
 * read or written outside the given areas.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HEADER 61
#define OVERHEAD 12
#define CODEC 0x07
#define LOG_APPEND_TIME 0x08
#define CONTROL 0x20
#define DELETE_HORIZON 0x40
#define NOT_MERGED (CONTROL | LOG_APPEND_TIME | DELETE_HORIZON)
/* What is not merged, where a codec's number stands for batches that are. */
#define OTHER -1

enum { OK = 0, NOT_FOR_US = 1, BAD_CHECKSUM = 2, MALFORMED = 3, NO_ROOM = 4 };

/* What is known of a finished batch; as the Python side reads it. */
struct built {
    int64_t start, size, records, max_timestamp, first_run, runs;
};
struct run {
    int64_t upstream, index, records;
};
struct range {
    int64_t end, after;
};
struct outcome {
    int64_t status, offset, batches, runs, used;
};

/* Big-endian numbers. */

static uint32_t get32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint64_t get64(const uint8_t *p) {
    return (uint64_t)get32(p) << 32 | get32(p + 4);
}

static void put32(uint8_t *p, uint32_t value) {
    p[0] = (uint8_t)(value >> 24);
    p[1] = (uint8_t)(value >> 16);
    p[2] = (uint8_t)(value >> 8);
    p[3] = (uint8_t)value;
}

static void put64(uint8_t *p, uint64_t value) {
    put32(p, (uint32_t)(value >> 32));
    put32(p + 4, (uint32_t)value);
}

/* CRC32C (Castagnoli), with the processor's instruction where it has one. */

static uint32_t table[8][256];

static void make_table(void) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
        table[0][n] = crc;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int k = 1; k < 8; k++) table[k][n] = table[k - 1][n] >> 8 ^ table[0][table[k - 1][n] & 0xFF];
}

static uint32_t crc_plain(uint32_t crc, const uint8_t *p, size_t size) {
    while (size >= 8) {
        uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = table[7][low & 0xFF] ^ table[6][low >> 8 & 0xFF] ^ table[5][low >> 16 & 0xFF] ^ table[4][low >> 24] ^
              table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
        p += 8;
        size -= 8;
    }
    while (size--) crc = crc >> 8 ^ table[0][(crc ^ *p++) & 0xFF];
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("sse4.2"))) static uint32_t crc_fast(uint32_t crc, const uint8_t *p, size_t size) {
    uint64_t wide = crc;
    while (size >= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        wide = __builtin_ia32_crc32di(wide, word);
        p += 8;
        size -= 8;
    }
    crc = (uint32_t)wide;
    while (size--) crc = __builtin_ia32_crc32qi(crc, *p++);
    return crc;
}

static int has_instruction(void) {
    return __builtin_cpu_supports("sse4.2");
}
#else
static uint32_t crc_fast(uint32_t crc, const uint8_t *p, size_t size) {
    return crc_plain(crc, p, size);
}

static int has_instruction(void) {
    return 0;
}
#endif

static int is_fast;

/* Called once, before anything else. */
void mm2py_begin(int may_be_fast) {
    make_table();
    is_fast = may_be_fast && has_instruction();
}

uint32_t mm2py_crc32c(const uint8_t *p, int64_t size) {
    return ~(is_fast ? crc_fast(~0u, p, (size_t)size) : crc_plain(~0u, p, (size_t)size));
}

/* Zigzag numbers of variable length. */

static int read_number(const uint8_t **at, const uint8_t *end, int longest, int64_t *value) {
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

static int number_size(int64_t value) {
    uint64_t raw = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
    int size = 1;
    while (raw >= 0x80) {
        raw >>= 7;
        size++;
    }
    return size;
}

static uint8_t *write_number(uint8_t *p, int64_t value) {
    uint64_t raw = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
    while (raw >= 0x80) {
        *p++ = (uint8_t)(raw | 0x80);
        raw >>= 7;
    }
    *p++ = (uint8_t)raw;
    return p;
}

/* Pass over a length and as many bytes; a null only where it is allowed. */
static int skip_bytes(const uint8_t **at, const uint8_t *end, int64_t least) {
    int64_t size;
    if (!read_number(at, end, 5, &size) || size < least || size > end - *at) return 0;
    if (size > 0) *at += size;
    return 1;
}

/* Whether key, value and headers fill the record exactly. */
static int is_whole(const uint8_t *at, const uint8_t *end) {
    int64_t headers;
    if (!skip_bytes(&at, end, -1) || !skip_bytes(&at, end, -1)) return 0;
    if (!read_number(&at, end, 5, &headers) || headers < 0) return 0;
    while (headers--)
        if (!skip_bytes(&at, end, 0) || !skip_bytes(&at, end, -1)) return 0;
    return at == end;
}

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

static void close_batch(struct filling *to) {
    if (!to->records) return;
    uint8_t *start = to->start;
    struct outcome *outcome = to->outcome;
    int64_t size = to->at - start;
    put64(start, 0);
    put32(start + 8, (uint32_t)(size - OVERHEAD));
    put32(start + 12, 0xFFFFFFFFu);
    start[16] = 2;
    start[21] = start[22] = 0;
    put32(start + 23, (uint32_t)(to->records - 1));
    put64(start + 27, (uint64_t)to->first_timestamp);
    put64(start + 35, (uint64_t)to->max_timestamp);
    memset(start + 43, 0xFF, 14);
    put32(start + 57, (uint32_t)to->records);
    put32(start + 17, mm2py_crc32c(start + 21, size - 21));
    struct built *built = &to->built[outcome->batches++];
    built->start = start - to->out;
    built->size = size;
    built->records = to->records;
    built->max_timestamp = to->max_timestamp;
    built->first_run = to->first_run;
    built->runs = outcome->runs - to->first_run;
    outcome->used = to->at - to->out;
    to->records = 0;
}

/* Append one record, whose part from the key on is *rest*. */
static int append(struct filling *to, int64_t offset, int64_t timestamp, uint8_t attributes, const uint8_t *rest,
                  int64_t rest_size) {
    struct outcome *outcome = to->outcome;
    int64_t delta = 0, body = 0;
    if (to->records) {
        delta = (int64_t)((uint64_t)timestamp - (uint64_t)to->first_timestamp);
        body = 1 + number_size(delta) + number_size(to->records) + rest_size;
        if (to->at - to->start + number_size(body) + body > to->limit) close_batch(to);
    }
    int is_first = !to->records;
    if (is_first) {
        delta = 0;
        body = 3 + rest_size;
    }
    int64_t size = number_size(body) + body + (is_first ? HEADER : 0);
    if (size > to->room - (to->at - to->out)) return NO_ROOM;
    if (is_first) {
        if (outcome->batches == to->most_batches) return NO_ROOM;
        to->start = to->at;
        to->at += HEADER;
        to->first_timestamp = to->max_timestamp = timestamp;
        to->first_run = outcome->runs;
    }
    if (is_first || offset != to->expected) {
        if (outcome->runs == to->most_runs) {
            if (is_first) to->at = to->start;
            return NO_ROOM;
        }
        struct run *run = &to->runs[outcome->runs++];
        run->upstream = offset;
        run->index = to->records;
        run->records = 0;
    }
    to->runs[outcome->runs - 1].records++;
    if (timestamp > to->max_timestamp) to->max_timestamp = timestamp;
    uint8_t *at = write_number(to->at, body);
    *at++ = attributes;
    at = write_number(at, delta);
    at = write_number(at, to->records);
    memcpy(at, rest, (size_t)rest_size);
    to->at = at + rest_size;
    to->records++;
    to->expected = (int64_t)((uint64_t)offset + 1);
    return OK;
}

/* Append the records of one batch, which begins at *batch* and has *size* bytes, all of them there. */
static int append_batch(struct filling *to, const uint8_t *batch, int64_t size, int64_t from_offset) {
    int64_t base = (int64_t)get64(batch), first = (int64_t)get64(batch + 27), last = (int64_t)get64(batch + 35);
    int attributes = batch[22], is_stamped = attributes & LOG_APPEND_TIME;
    int32_t records = (int32_t)get32(batch + 57);
    const uint8_t *at = batch + HEADER, *end = batch + size;
    to->outcome->offset = base;
    if (attributes & (CODEC | CONTROL)) return NOT_FOR_US;
    if (mm2py_crc32c(batch + 21, size - 21) != get32(batch + 17)) return BAD_CHECKSUM;
    for (int32_t n = 0; n < records; n++) {
        int64_t length, since, delta;
        if (!read_number(&at, end, 5, &length) || length < 1 || length > end - at) return MALFORMED;
        const uint8_t *record_end = at + length;
        uint8_t record_attributes = *at++;
        if (!read_number(&at, record_end, 10, &since) || !read_number(&at, record_end, 5, &delta)) return MALFORMED;
        /* No attributes of records are defined; aiokafka, which reads them as a number, refuses these too. */
        if (record_attributes & 0x80 || !is_whole(at, record_end)) return MALFORMED;
        int64_t offset = (int64_t)((uint64_t)base + (uint64_t)delta);
        if (offset >= from_offset) {
            int64_t timestamp = is_stamped ? last : (int64_t)((uint64_t)first + (uint64_t)since);
            int status = append(to, offset, timestamp, record_attributes, at, record_end - at);
            if (status != OK) return status;
        }
        at = record_end;
    }
    return at == end ? OK : MALFORMED;
}

/*
 * Merge the batches of *in*, from upstream offset *from_offset* on, into batches of at most *limit* bytes in *out*.
 * *outcome* has the status, the base offset of the batch that it is about, and how much of the areas is used; batches
 * that were finished before an error count.
 */
void mm2py_merge(const uint8_t *in, int64_t size, int64_t from_offset, int64_t limit, uint8_t *out, int64_t room,
                 struct built *built, int64_t most_batches, struct run *runs, int64_t most_runs,
                 struct outcome *outcome) {
    struct filling to = {out, room, limit, built, runs, most_batches, most_runs, outcome, out, out, 0, 0, 0, 0, 0};
    int64_t at = 0;
    memset(outcome, 0, sizeof *outcome);
    while (outcome->status == OK && size - at >= HEADER) {
        int64_t length = (int32_t)get32(in + at + 8);
        int64_t whole = length + OVERHEAD;
        if (in[at + 16] != 2 || whole < HEADER || whole > size - at) {
            outcome->status = NOT_FOR_US;
            break;
        }
        outcome->status = append_batch(&to, in + at, whole, from_offset);
        at += whole;
    }
    if (outcome->status == OK && at != size) outcome->status = NOT_FOR_US;
    close_batch(&to);
}

/*
 * Split a record set into ranges of small plain batches of one codec and one leader, and others; see `ranges` in
 * merging.py. Each has its end, and the offset after it or -1. Returns how many there are, -1 if that is more than
 * *most*; the last one ends where no whole batch of magic 2 follows.
 */
int64_t mm2py_ranges(const uint8_t *in, int64_t size, int64_t below, struct range *found, int64_t most) {
    int64_t at = 0, start = 0, last = 0, count = 0, ranges = 0;
    int kind = OTHER;
    uint32_t led_by = ~0u;
    for (;;) {
        int64_t whole = size - at >= HEADER ? (int64_t)(int32_t)get32(in + at + 8) + OVERHEAD : 0;
        int is_end = whole < HEADER || whole > size - at;
        int this = OTHER;
        uint32_t leader = led_by;
        if (!is_end) {
            leader = get32(in + at + 12);
            if (whole < below && in[at + 16] == 2 && !(in[at + 22] & NOT_MERGED)) this = in[at + 22] & CODEC;
        }
        if (is_end || this != kind || leader != led_by) {
            if (at > start) {
                if (ranges == most) return -1;
                found[ranges].end = at;
                found[ranges].after = -1;
                if (kind != OTHER && count > 1)
                    found[ranges].after = (int64_t)(get64(in + last) + (uint64_t)(int32_t)get32(in + last + 23) + 1);
                ranges++;
            }
            if (is_end) return ranges;
            start = at;
            count = 0;
            kind = this;
            led_by = leader;
        }
        count++;
        last = at;
        at += whole;
    }
}
