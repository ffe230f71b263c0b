/*
 * Waiting for room in a mailbox under total store order (x86): one sender that sleeps for want of
 * room, and its receiver (transports/shm/lane/mailbox_lane.c). Stores wait in a FIFO buffer that
 * only their processor reads through. An exchange and a fence wait until it is empty.
 *
 *   sender:    seen = returned;  wants++;  wanted = 1;  armed = 1;  fence;
 *              if (consumed == returned) sleep until signal
 *   receiver:  MESSAGES times: consumed++;  if (asked) { fence;  answer }
 *              at any time:    if (wanted) { exchange(wanted, 0);  fence;  if (wants is new) {
 * asked at = seen;  answer } }
 *   answer:    asked = consumed == asked at;  if (!asked && armed) signal
 *
 * A sender that sleeps, with no signal, after its receiver has passed a message and has looked at
 * all that it was notified of, is wedged.
 */
#include <stdint.h>
#include <tests/harness.h>

enum { MESSAGES = 2, BUFFER = 4, ROOM = 1 << 18 };
enum variable { SEEN, WANTS, WANTED, ARMED, CONSUMED, N_VARIABLES };
enum { SENDER, RECEIVER, N_PROCESSORS };

#define OWN_STATE                                                     \
    uint8_t signal; /* goes through the kernel: atomic at once */     \
    uint8_t at[N_PROCESSORS], passed, asked, asked_at, answered, new; \
    uint8_t slept;
#include <tests/store_order.h>

struct protocol {
    bool no_fence_after_passing;  /* between `consumed` and the look at `armed` */
    bool no_fence_after_exchange; /* between the exchange of `wanted` and the look at `wants` */
    /* `wanted` is taken by a load and a store, and no fence follows */
    bool plain_wanted;
};

enum { ASLEEP = 6, THROUGH };

static bool step_sender(struct state *s) {
    uint8_t *at = &s->at[SENDER];
    switch (*at) {
    case 0: /* nothing has come back: it returned none */
        if (!store(s, SENDER, SEEN, 0)) return false;
        break;
    case 1:
        if (!store(s, SENDER, WANTS, 1)) return false;
        break;
    case 2:
        if (!store(s, SENDER, WANTED, 1)) return false;
        break;
    case 3:
        if (!store(s, SENDER, ARMED, 1)) return false;
        break;
    case 4:
        if (s->n_stored[SENDER]) return false;
        break;
    case 5: *at = load(s, SENDER, CONSUMED) ? THROUGH : ASLEEP; return true;
    case ASLEEP:
        if (!s->signal) return false;
        s->signal = 0;
        break;
    default: return false;
    }
    (*at)++;
    return true;
}

enum { FREE, FENCE, ANSWER, TAKE, TAKE_STORE, AFTER_TAKE, LOOK, SEE };

static void answer(struct state *s) {
    s->asked = s->passed == s->asked_at;
    if (!s->asked && load(s, RECEIVER, ARMED)) s->signal = 1;
    s->at[RECEIVER] = FREE;
}

static bool step_receiver(struct state *s, const struct protocol *protocol) {
    uint8_t *at = &s->at[RECEIVER];
    switch (*at) {
    case FREE: /* passes the next */
        if (s->passed == MESSAGES || !store(s, RECEIVER, CONSUMED, (uint8_t)(s->passed + 1)))
            return false;
        s->passed++;
        if (s->asked) *at = protocol->no_fence_after_passing ? ANSWER : FENCE;
        return true;
    case FENCE:
        if (s->n_stored[RECEIVER]) return false;
        *at = ANSWER;
        return true;
    case ANSWER: answer(s); return true;
    case TAKE:
        if (protocol->plain_wanted) {
            *at = TAKE_STORE;
            return true;
        }
        if (s->n_stored[RECEIVER]) return false;
        s->memory[WANTED] = 0;
        *at = AFTER_TAKE;
        return true;
    case TAKE_STORE:
        if (!store(s, RECEIVER, WANTED, 0)) return false;
        *at = LOOK;
        return true;
    case AFTER_TAKE:
        if (!protocol->no_fence_after_exchange && s->n_stored[RECEIVER]) return false;
        *at = LOOK;
        return true;
    case LOOK:
        s->new = load(s, RECEIVER, WANTS);
        *at = s->new != s->answered ? SEE : FREE;
        return true;
    case SEE:
        s->answered = s->new;
        s->asked_at = load(s, RECEIVER, SEEN);
        answer(s);
        return true;
    default: return false;
    }
}

/* A turn looks at `wanted` before it sleeps, and whenever it is free. */
static bool look_at_wanted(struct state *s) {
    if (s->at[RECEIVER] != FREE || !load(s, RECEIVER, WANTED)) return false;
    s->at[RECEIVER] = TAKE;
    return true;
}

/* The receiver is free, has passed a message, sees no request, and the sender sleeps unsignalled. */
static bool wedged(const struct state *s) {
    bool at_rest = !s->n_stored[SENDER] && !s->n_stored[RECEIVER] && s->at[RECEIVER] == FREE &&
                   !s->memory[WANTED];
    return at_rest && s->at[SENDER] == ASLEEP && !s->signal && s->passed == MESSAGES;
}

static const char *fault_of(struct protocol protocol) {
    bool slept = false, through = false;
    visit_first();
    for (uint32_t i = 0; i < n_seen; i++) {
        struct state next;
        if (wedged(&seen[i])) return "wedged";
        slept |= seen[i].at[SENDER] == ASLEEP;
        through |= seen[i].at[SENDER] == THROUGH;
        if (next = seen[i], step_sender(&next)) visit(&next);
        if (next = seen[i], step_receiver(&next, &protocol)) visit(&next);
        if (next = seen[i], look_at_wanted(&next)) visit(&next);
        for (int p = 0; p < N_PROCESSORS; p++)
            if (next = seen[i], drain_one(&next, p)) visit(&next);
    }
    return slept && through ? NULL : "stuck";
}

static bool leads_to(struct protocol protocol, const char *what) {
    const char *fault = fault_of(protocol);
    printf("  %u states: %s\n", n_seen, fault ? fault : "no fault");
    return what ? fault && strcmp(fault, what) == 0 : !fault;
}

TEST(a_sender_that_sleeps_for_room_is_woken_when_there_is_some) {
    CHECK(leads_to((struct protocol){.plain_wanted = false}, NULL));
    CHECK(n_seen > 100);
}
TEST(without_the_fence_behind_what_was_passed_a_sender_sleeps_on) {
    CHECK(leads_to((struct protocol){.no_fence_after_passing = true}, "wedged"));
}
/* On x86 the exchange is the fence, so that a compiler's fence behind it changes nothing that a
 * test could see there. */
TEST(the_exchange_of_wanted_stands_for_the_fence_behind_it) {
    CHECK(leads_to((struct protocol){.no_fence_after_exchange = true}, NULL));
    CHECK(leads_to((struct protocol){.plain_wanted = true}, "wedged"));
}
