/* Checksums, and a batch being filled with records. */
#include "records.h"

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

void mm2py_close_batch(struct filling *to) {
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

int mm2py_add_record(struct filling *to, int64_t offset, int64_t timestamp, uint8_t attributes, int64_t rest_size,
                     uint8_t **rest) {
    struct outcome *outcome = to->outcome;
    int64_t delta = 0, body = 0;
    if (to->records) {
        delta = (int64_t)((uint64_t)timestamp - (uint64_t)to->first_timestamp);
        body = 1 + number_size(delta) + number_size(to->records) + rest_size;
        if (to->at - to->start + number_size(body) + body > to->limit) mm2py_close_batch(to);
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
    *rest = at;
    to->at = at + rest_size;
    to->records++;
    to->expected = (int64_t)((uint64_t)offset + 1);
    return OK;
}
