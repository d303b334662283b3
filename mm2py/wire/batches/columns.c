/*
 * Records in columns: taken out of uncompressed batches, and put into new ones, without making them objects.
 *
 * Columns lie in memory as Arrow has them: of a column of bytes the end of each entry, all entries one after the other,
 * and a bit for each that is not null. packed_records.py explains the arguments.
 */
#include "records.h"

/* A column of bytes. Without *ends* entries are only counted; without *valid* none is null. */
struct binaries {
    int32_t *ends;
    uint8_t *bytes, *valid;
    int64_t size, nulls;
};

struct columns {
    int64_t records, headers;
    int64_t *offsets, *timestamps;
    int32_t *kinds, *header_ends;
    struct binaries key, value, header_key, header_value;
    /* Of records to be written: which have timestamps and headers, and how many units a millisecond has. */
    const uint8_t *has_timestamp, *has_headers;
    int64_t unit;
};

/* Entries of *size* -1 are null. */
static void put(struct binaries *to, int64_t index, const uint8_t *bytes, int64_t size) {
    if (to->ends) {
        if (size >= 0) {
            memcpy(to->bytes + to->size, bytes, (size_t)size);
            to->valid[index >> 3] |= (uint8_t)(1 << (index & 7));
        }
        to->ends[index + 1] = (int32_t)(to->size + (size > 0 ? size : 0));
    }
    if (size < 0)
        to->nulls++;
    else
        to->size += size;
}

/* Read a length and as many bytes into *to*. */
static int take(const uint8_t **at, const uint8_t *end, int64_t least, struct binaries *to, int64_t index) {
    int64_t size;
    if (!read_number(at, end, 5, &size) || size < least || size > end - *at) return 0;
    put(to, index, *at, size);
    if (size > 0) *at += size;
    return 1;
}

/* Read key, value and headers, which fill the record exactly. */
static int take_rest(const uint8_t *at, const uint8_t *end, struct columns *to) {
    int64_t headers;
    if (!take(&at, end, -1, &to->key, to->records) || !take(&at, end, -1, &to->value, to->records)) return 0;
    if (!read_number(&at, end, 5, &headers) || headers < 0) return 0;
    for (; headers; headers--) {
        if (!take(&at, end, 0, &to->header_key, to->headers)) return 0;
        if (!take(&at, end, -1, &to->header_value, to->headers)) return 0;
        to->headers++;
    }
    return at == end;
}

/* Take the records from *from_offset* up to, and without, *before* out of one batch. */
static int take_batch(struct columns *to, const uint8_t *batch, int64_t size, int64_t from_offset, int64_t before) {
    struct reading from = reading_of(batch, size);
    struct record record;
    if (from.attributes & CODEC) return NOT_FOR_US;
    /* Only counting comes first, and what was counted is sound. */
    if (!to->offsets && !is_intact(batch, size)) return BAD_CHECKSUM;
    while (from.left) {
        if (!read_record(&from, &record)) return MALFORMED;
        if (record.offset < from_offset || record.offset >= before) {
            if (!is_whole(record.rest, record.end)) return MALFORMED;
            continue;
        }
        if (!take_rest(record.rest, record.end, to)) return MALFORMED;
        if (to->offsets) {
            to->offsets[to->records] = record.offset;
            to->timestamps[to->records] = record.timestamp;
            to->kinds[to->records] = from.attributes & LOG_APPEND_TIME ? 1 : 0;
            to->header_ends[to->records + 1] = (int32_t)to->headers;
        }
        to->records++;
    }
    return from.at == from.end ? OK : MALFORMED;
}

/*
 * Take the records of whole data batches of *in* into *to*: without *to->offsets* they are only counted. *outcome* has
 * the status and the base offset of the batch that it is about.
 */
void mm2py_unpack(const uint8_t *in, int64_t size, int64_t from, int64_t before, struct columns *to,
                  struct outcome *outcome) {
    int64_t at = 0;
    memset(outcome, 0, sizeof *outcome);
    while (outcome->status == OK && size - at >= HEADER) {
        int64_t whole = (int64_t)(int32_t)get32(in + at + 8) + OVERHEAD;
        outcome->offset = (int64_t)get64(in + at);
        if (in[at + 16] != 2 || whole < HEADER || whole > size - at)
            outcome->status = NOT_FOR_US;
        else
            outcome->status = take_batch(to, in + at, whole, from, before);
        at += whole;
    }
    if (outcome->status == OK && at != size) outcome->status = NOT_FOR_US;
}

static int is_set(const uint8_t *bits, int64_t index) {
    return !bits || bits[index >> 3] >> (index & 7) & 1;
}

static int64_t entry_size(const struct binaries *from, int64_t index) {
    return is_set(from->valid, index) ? from->ends[index + 1] - from->ends[index] : -1;
}

static int64_t written_size(const struct binaries *from, int64_t index) {
    int64_t size = entry_size(from, index);
    return number_size(size) + (size > 0 ? size : 0);
}

static uint8_t *write_entry(uint8_t *at, const struct binaries *from, int64_t index) {
    int64_t size = entry_size(from, index);
    at = write_number(at, size);
    if (size <= 0) return at;
    memcpy(at, from->bytes + from->ends[index], (size_t)size);
    return at + size;
}

/* Whole units in *value*, rounded down. */
static int64_t divided(int64_t value, int64_t unit) {
    return value / unit - (value % unit < 0);
}

/*
 * Put the records *from* into batches of at most *limit* bytes in *out*, each with the headers *more* after its own, as
 * they are written in a record. *outcome* is as for `mm2py_merge`.
 */
void mm2py_pack(const struct columns *from, const uint8_t *more, int64_t more_size, int64_t more_headers, int64_t limit,
                uint8_t *out, int64_t room, struct built *built, int64_t most_batches, struct run *runs,
                int64_t most_runs, struct outcome *outcome) {
    struct filling to = {out, room, limit, built, runs, most_batches, most_runs, outcome, out, out, 0, 0, 0, 0, 0};
    memset(outcome, 0, sizeof *outcome);
    for (int64_t row = 0; row < from->records && outcome->status == OK; row++) {
        int64_t first = 0, end = 0;
        if (is_set(from->has_headers, row)) {
            first = from->header_ends[row];
            end = from->header_ends[row + 1];
        }
        int64_t headers = end - first + more_headers;
        int64_t rest_size = written_size(&from->key, row) + written_size(&from->value, row) + number_size(headers);
        for (int64_t n = first; n < end; n++)
            rest_size += written_size(&from->header_key, n) + written_size(&from->header_value, n);
        int64_t timestamp = -1;
        if (is_set(from->has_timestamp, row)) timestamp = divided(from->timestamps[row], from->unit);
        uint8_t *at;
        outcome->status =
            mm2py_add_record(&to, from->offsets[row], timestamp, 0, rest_size + more_size, &at);
        if (outcome->status != OK) break;
        at = write_entry(at, &from->key, row);
        at = write_entry(at, &from->value, row);
        at = write_number(at, headers);
        for (int64_t n = first; n < end; n++) {
            at = write_entry(at, &from->header_key, n);
            at = write_entry(at, &from->header_value, n);
        }
        memcpy(at, more, (size_t)more_size);
    }
    mm2py_close_batch(&to);
}
