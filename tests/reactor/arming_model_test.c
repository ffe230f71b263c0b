/*
 * The arming protocol under total store order (x86): each processor's stores wait in a FIFO buffer
 * that only itself reads through, and reach memory at any later moment; a fence, and an atomic
 * exchange, wait until it is empty. All interleavings of one writer and one reader are walked,
 * breadth first.
 *
 *   writer, MESSAGES times: message++; [fence]; if (exchange(armed, 0)) signal++
 *   reader, for ever:       take all messages; armed = 1; [fence]; if (message != taken) { armed = 0; start over }
 *                           else sleep until signal != 0; signal = 0; armed = 0; start over
 *
 * A wakeup is lost when the reader sleeps, no signal is there, the writer is through, and a message
 * was not taken. The exchange of the writer is a load in the second form, as in the worker's own
 * `woken` and `armed` (wakeup.c).
 */
#include <stdint.h>
#include <tests/harness.h>

enum { MESSAGES = 3, BUFFER = 4, ROOM = 1 << 18 };
enum variable { MESSAGE, ARMED, N_VARIABLES };
enum processor { WRITER, READER, N_PROCESSORS };

#define OWN_STATE                                                                 \
    uint8_t signal;           /* signals go through the kernel: atomic at once */ \
    uint8_t at[N_PROCESSORS]; /* the next instruction */                          \
    uint8_t sent, taken;
#include <tests/store_order.h>

struct protocol {
    bool writer_fence, reader_fence, writer_exchanges, reader_looks_again;
};

/* Each of these takes one instruction, or answers false when it has to wait (or is through). */
static bool step_writer(struct state *s, const struct protocol *protocol) {
    uint8_t *at = &s->at[WRITER];
    switch (*at) {
    case 0:
        if (s->sent == MESSAGES || !store(s, WRITER, MESSAGE, (uint8_t)(s->sent + 1))) return false;
        s->sent++, *at = 1;
        return true;
    case 1:
        if (protocol->writer_fence && s->n_stored[WRITER]) return false;
        *at = 2;
        return true;
    case 2:
        if (protocol->writer_exchanges && s->n_stored[WRITER]) return false;
        *at = load(s, WRITER, ARMED) ? 3 : 0;
        if (protocol->writer_exchanges) s->memory[ARMED] = 0;
        return true;
    default: s->signal = 1, *at = 0; return true;
    }
}

enum { ASLEEP = 4 };

static bool step_reader(struct state *s, const struct protocol *protocol) {
    uint8_t *at = &s->at[READER];
    switch (*at) {
    case 0: s->taken = load(s, READER, MESSAGE), *at = 1; return true;
    case 1:
        if (!store(s, READER, ARMED, 1)) return false;
        *at = 2;
        return true;
    case 2:
        if (protocol->reader_fence && s->n_stored[READER]) return false;
        *at = 3;
        return true;
    case 3:
        *at = protocol->reader_looks_again && load(s, READER, MESSAGE) != s->taken ? 5 : ASLEEP;
        return true;
    case ASLEEP:
        if (!s->signal) return false;
        s->signal = 0, *at = 5;
        return true;
    default:
        if (!store(s, READER, ARMED, 0)) return false;
        *at = 0;
        return true;
    }
}

static bool lost(const struct state *s) {
    bool writer_is_through = s->sent == MESSAGES && s->at[WRITER] == 0 && !s->n_stored[WRITER];
    return writer_is_through && s->at[READER] == ASLEEP && !s->n_stored[READER] && !s->signal &&
           s->taken != MESSAGES;
}

/* ---- breadth first over all states */

/* True when some interleaving loses a wakeup. */
static bool can_lose(struct protocol protocol) {
    visit_first();
    for (uint32_t i = 0; i < n_seen; i++) {
        struct state next;
        if (lost(&seen[i])) return true;
        if (next = seen[i], step_writer(&next, &protocol)) visit(&next);
        if (next = seen[i], step_reader(&next, &protocol)) visit(&next);
        for (int p = 0; p < N_PROCESSORS; p++)
            if (next = seen[i], drain_one(&next, (enum processor)p)) visit(&next);
    }
    return false;
}

TEST(no_wakeup_is_lost_with_both_fences) {
    CHECK(!can_lose((struct protocol){true, true, false, true}));
    CHECK(n_seen > 500);
}
TEST(exchange_in_place_of_the_writers_fence_loses_none) {
    CHECK(!can_lose((struct protocol){false, true, true, true}));
    CHECK(n_seen > 500);
}
TEST(without_the_readers_fence_a_wakeup_is_lost) {
    CHECK(can_lose((struct protocol){true, false, false, true}));
    CHECK(can_lose((struct protocol){true, false, true, true}));
}
TEST(without_the_writers_fence_a_wakeup_is_lost) {
    CHECK(can_lose((struct protocol){false, true, false, true}));
}
TEST(without_the_last_look_a_wakeup_is_lost) {
    CHECK(can_lose((struct protocol){true, true, false, false}));
}
