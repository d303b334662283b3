/*
 * Puts the records of uncompressed record batches into new batches, without making them objects.
 *
 * It does what mm2py/wire/batches/rebuild.py does with the codec "none", and is called by merging.py, which explains
 * the arguments.
 */
#include "records.h"

#define DELETE_HORIZON 0x40
#define NOT_MERGED (CONTROL | LOG_APPEND_TIME | DELETE_HORIZON)
/* What is not merged, where a codec's number stands for batches that are. */
#define OTHER -1

struct range {
    int64_t end, after;
};

/* Append the records of one batch, which begins at *batch* and has *size* bytes, all of them there. */
static int append_batch(struct filling *to, const uint8_t *batch, int64_t size, int64_t from_offset) {
    struct reading from = reading_of(batch, size);
    struct record record;
    to->outcome->offset = from.base;
    if (from.attributes & (CODEC | CONTROL)) return NOT_FOR_US;
    if (!is_intact(batch, size)) return BAD_CHECKSUM;
    while (from.left) {
        if (!read_record(&from, &record) || !is_whole(record.rest, record.end)) return MALFORMED;
        if (record.offset < from_offset) continue;
        int64_t rest_size = record.end - record.rest;
        uint8_t *rest;
        int status = mm2py_add_record(to, record.offset, record.timestamp, record.attributes, rest_size, &rest);
        if (status != OK) return status;
        memcpy(rest, record.rest, (size_t)rest_size);
    }
    return from.at == from.end ? OK : MALFORMED;
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
    mm2py_close_batch(&to);
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
