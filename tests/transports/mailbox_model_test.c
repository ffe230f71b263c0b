/*
 * The mailbox under total store order (x86): each processor's stores wait in a FIFO buffer that
 * only itself reads through, and reach memory at any later moment; an exchange, a compare-and-swap
 * and a fence wait until it is empty. All interleavings of two producers, each with one node that
 * it uses again and again, and one receiver are walked, breadth first.
 *
 *   producer, MESSAGES times:  wait until consumed == sent;  number = ++sent;
 *                              before = newest;  do next = before  while (!cas(newest, before,
 * mine));
 *                              sleep = armed;  if (sleep) { signal++;  cas(armed, sleep, 0) }
 *   receiver, for ever:        if (newest) { chain = exchange(newest, 0);  read it, oldest first;
 * consumed++ of each }
 *                              else { armed = ++sleeps;  fence;  if (!newest) sleep until signal,
 * signal = 0;  armed = 0 }
 *
 * A producer that is stopped for ever at any instruction is one that is not scheduled any more, so
 * what must hold, must in every state: what is read is the next of its producer; and a receiver
 * that sleeps unsignalled has read all that was sent by those who are through with their sending.
 */
#include <stdint.h>
#include <tests/harness.h>

enum { MESSAGES = 2, BUFFER = 3, PRODUCERS = 2, ROOM = 1 << 20 };
enum variable {
    NEWEST,
    ARMED,
    NEXT,
    NUMBER = NEXT + PRODUCERS,
    CONSUMED = NUMBER + PRODUCERS,
    N_VARIABLES = CONSUMED + PRODUCERS
};
enum { RECEIVER = PRODUCERS, N_PROCESSORS };

#define OWN_STATE                                                       \
    uint8_t signal; /* signals go through the kernel: atomic at once */ \
    uint8_t at[N_PROCESSORS], reg[N_PROCESSORS];                        \
    uint8_t sent[PRODUCERS], seen[PRODUCERS];                           \
    uint8_t chain[PRODUCERS], n_chain, sleeps, wrong;
#include <tests/store_order.h>

struct protocol {
    bool stores_only;    /* publishes by a plain store, not by compare-and-swap */
    bool notifies_first; /* reports a node consumed before it has read it */
    bool takes_armed;    /* takes `armed` away, and signals then */
    bool no_fence, no_last_look;
};

/* Each of these takes one instruction, or answers false when it has to wait (or is through). */
static bool step_producer(struct state *s, int p, const struct protocol *protocol) {
    uint8_t *at = &s->at[p], *reg = &s->reg[p];
    switch (*at) {
    case 0:
        if (s->sent[p] == MESSAGES || load(s, p, CONSUMED + p) != s->sent[p]) return false;
        *at = 1;
        return true;
    case 1:
        if (!store(s, p, NUMBER + p, (uint8_t)(s->sent[p] + 1))) return false;
        *at = 2;
        return true;
    case 2: *reg = load(s, p, NEWEST), *at = 3; return true;
    case 3:
        if (!store(s, p, NEXT + p, *reg)) return false;
        *at = 4;
        return true;
    case 4:
        if (s->n_stored[p]) return false;
        if (s->memory[NEWEST] == *reg || protocol->stores_only)
            s->memory[NEWEST] = (uint8_t)(p + 1), *at = 5, *reg = 0;
        else
            *reg = s->memory[NEWEST], *at = 3;
        return true;
    case 5:
        *reg = load(s, p, ARMED);
        *at = *reg ? (protocol->takes_armed ? 7 : 6) : 8;
        return true;
    case 6: s->signal = 1, *at = protocol->takes_armed ? 8 : 7; return true;
    case 7:
        if (s->n_stored[p]) return false;
        if (s->memory[ARMED] == *reg)
            s->memory[ARMED] = 0, *at = protocol->takes_armed ? 6 : 8;
        else
            *at = 8;
        return true;
    default: s->sent[p]++, *reg = 0, *at = 0; return true;
    }
}

enum { ASLEEP = 7 };

static bool step_receiver(struct state *s, const struct protocol *protocol) {
    uint8_t *at = &s->at[RECEIVER], *reg = &s->reg[RECEIVER];
    int p = s->n_chain ? s->chain[s->n_chain - 1] - 1 : 0;
    switch (*at) {
    case 0: *at = load(s, RECEIVER, NEWEST) ? 1 : 4; return true;
    case 1:
        if (s->n_stored[RECEIVER]) return false;
        *reg = s->memory[NEWEST], s->memory[NEWEST] = 0, *at = 2;
        return true;
    case 2: /* from the newest to the oldest */
        if (*reg && s->n_chain == PRODUCERS) {
            s->wrong = 1; /* longer than there are nodes */
            return false;
        }
        if (*reg)
            s->chain[s->n_chain++] = *reg, *reg = load(s, RECEIVER, NEXT + *reg - 1);
        else
            *at = 3;
        return true;
    case 3: /* and back */
        if (!s->n_chain) {
            *at = 0;
            return true;
        }
        if (protocol->notifies_first) {
            if (!store(s, RECEIVER, CONSUMED + p, (uint8_t)(s->seen[p] + 1))) return false;
            *at = 9;
            return true;
        }
        if (load(s, RECEIVER, NUMBER + p) != s->seen[p] + 1) s->wrong = 1;
        if (!store(s, RECEIVER, CONSUMED + p, (uint8_t)(s->seen[p] + 1))) return false;
        s->seen[p]++, s->chain[--s->n_chain] = 0;
        return true;
    case 9:
        if (load(s, RECEIVER, NUMBER + p) != s->seen[p] + 1) s->wrong = 1;
        s->seen[p]++, s->chain[--s->n_chain] = 0, *at = 3;
        return true;
    case 4:
        if (!store(s, RECEIVER, ARMED, (uint8_t)(s->sleeps + 1))) return false;
        s->sleeps++, *at = 5;
        return true;
    case 5:
        if (!protocol->no_fence && s->n_stored[RECEIVER]) return false;
        *at = 6;
        return true;
    case 6: *at = !protocol->no_last_look && load(s, RECEIVER, NEWEST) ? 8 : ASLEEP; return true;
    case ASLEEP:
        if (!s->signal) return false;
        s->signal = 0, *at = 8;
        return true;
    default:
        if (!store(s, RECEIVER, ARMED, 0)) return false;
        *at = 0;
        return true;
    }
}

/* Of those who are through with their sending something lies there, and no side will wake the
 * receiver. */
static bool wedged(const struct state *s) {
    if (s->at[RECEIVER] != ASLEEP || s->n_stored[RECEIVER] || s->signal) return false;
    for (int p = 0; p < PRODUCERS; p++)
        if (s->at[p] == 0 && s->sent[p] != s->seen[p]) return true;
    return false;
}

/* ---- breadth first over all states */

/* What some interleaving leads to, or NULL. */
static const char *fault_of(struct protocol protocol) {
    bool all_read = false;
    visit_first();
    for (uint32_t i = 0; i < n_seen; i++) {
        struct state next;
        if (seen[i].wrong) return "wrong";
        if (wedged(&seen[i])) return "wedged";
        all_read |= seen[i].seen[0] == MESSAGES && seen[i].seen[1] == MESSAGES;
        for (int p = 0; p < PRODUCERS; p++)
            if (next = seen[i], step_producer(&next, p, &protocol)) visit(&next);
        if (next = seen[i], step_receiver(&next, &protocol)) visit(&next);
        for (int p = 0; p < N_PROCESSORS; p++)
            if (next = seen[i], drain_one(&next, p)) visit(&next);
    }
    return all_read ? NULL : "stuck";
}

#define CHECK_FAULT(what, ...)                                           \
    do {                                                                 \
        const char *fault = fault_of((struct protocol){__VA_ARGS__});    \
        printf("  %u states: %s\n", n_seen, fault ? fault : "no fault"); \
        CHECK(fault &&strcmp(fault, what) == 0);                         \
    } while (0)

TEST(in_order_once_and_awake_whichever_stops_wherever) {
    const char *fault = fault_of((struct protocol){.no_fence = false});
    printf("  %u states%s%s\n", n_seen, fault ? ": " : "", fault ? fault : "");
    CHECK(!fault);
    CHECK(n_seen > 10000);
}
TEST(a_plain_store_in_place_of_the_swap_loses_messages) {
    CHECK(fault_of((struct protocol){.stores_only = true}));
}
TEST(notifying_before_reading_reads_what_was_written_over) {
    CHECK_FAULT("wrong", .notifies_first = true);
}
TEST(who_takes_armed_before_it_signals_wedges_others_when_it_stops) {
    CHECK_FAULT("wedged", .takes_armed = true);
}
TEST(without_the_fence_or_the_last_look_a_message_lies_there) {
    CHECK_FAULT("wedged", .no_fence = true);
    CHECK_FAULT("wedged", .no_last_look = true);
}
