/* Streams between two workers: bytes that know their place, and calls that end within or later. */
#ifndef WEFT_TESTS_SUPPORT_STREAMS_H
#define WEFT_TESTS_SUPPORT_STREAMS_H

#include "worker_pair.h"

/* The byte at a place of a stream. */
static inline unsigned char byte_at(uint64_t place) {
    return (unsigned char)((place * 0x9e3779b97f4a7c15u) >> 56);
}
static inline void write_bytes(void *to, uint64_t place, size_t len) {
    for (size_t i = 0; i < len; i++) ((unsigned char *)to)[i] = byte_at(place + i);
}
static inline bool are_bytes(const void *from, uint64_t place, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (((const unsigned char *)from)[i] != byte_at(place + i)) return false;
    return true;
}

enum { ROOM = 1 << 21 };
static char out[ROOM], in[ROOM];

#define ONE(base, len) (&(weft_iov_t){(base), (len)}), 1

#define ALL(tally_p) (&(weft_op_t){.done = tally, .arg = (tally_p), .flags = WEFT_STREAM_WAIT_ALL})

static inline bool ended(weft_status_t st, const struct tally *t) {
    return st != WEFT_IN_PROGRESS || t->calls == 1;
}
static inline weft_status_t outcome(weft_status_t st, const struct tally *t) {
    return st == WEFT_IN_PROGRESS ? t->status : st;
}

/* UNTIL looks once more than it must. */
#define UNTIL_TAKEN(t, data_p, len_p)                                                       \
    do {                                                                                    \
        bool taken = false;                                                                 \
        UNTIL(t, taken || (taken = weft_stream_take((t)->back, data_p, len_p) == WEFT_OK)); \
    } while (0)

static inline void up_with_window(struct two *t, const char *transport, const char *window) {
    two_workers(t, transport, &(weft_setting_t){"stream.window", window}, 1);
    two_dial(t);
    UNTIL(t, t->ready && t->back);
}

#endif
