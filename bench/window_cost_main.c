/*
 * window-cost: what the window's bookkeeping costs a message, in ns: the median over rounds of a
 * frame that is numbered, sent, received in its place and, one in sixteen, acknowledged; first
 * without and then with its bytes. No lane and no copy of the payload is in it.
 */
#include "cores.h"
#include <transports/reliable/window.h>
#include <transports/reliable/window_wire.h>

static void on_effect(struct fsm *m, unsigned effect) {}
static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    abort();
}
static const struct fsm_port port = {&weft__window_machine, on_effect, on_fail};

enum { ROUNDS = 101, FRAMES = 20000, ACK_EVERY = 16 };

/* The frame as bytes and back: what both sides add to the numbers. */
static void over_the_wire(struct window_frame *f) {
    uint8_t bytes[WINDOW_HANDSHAKE];
    size_t len = weft__window_encode(f, bytes);
    __asm__ volatile("" : : "r"(bytes) : "memory");
    if (!weft__window_decode(bytes, len, f)) abort();
}

static void one_frame(struct window *from, struct window *to, int wire) {
    from->end++;
    weft__fsm_step(&from->fsm, WINDOW_EV_SEND);
    struct window_frame f = {.kind = WINDOW_DATA, .tag = 1, .seq = from->next - 1};
    if (wire) over_the_wire(&f);
    weft__fsm_step(&to->fsm, weft__window_frame(to, f.seq));
}

static void acknowledge(struct window *from, struct window *to, int wire) {
    struct window_frame f = {.kind = WINDOW_ACK, .tag = 1, .ack = to->expected, .sack = to->held};
    if (wire) over_the_wire(&f);
    weft__fsm_step(&from->fsm, weft__window_ack(from, f.ack, f.sack));
}

static double median(int wire) {
    static double round[ROUNDS];
    struct window from, to;
    weft__window_init(&from, &port, 1, 10, 20);
    weft__window_init(&to, &port, 2, 20, 10);
    for (int r = 0; r < ROUNDS; r++) {
        double begin = now_ns();
        for (int i = 1; i <= FRAMES; i++) {
            one_frame(&from, &to, wire);
            if (i % ACK_EVERY == 0) acknowledge(&from, &to, wire);
        }
        round[r] = (now_ns() - begin) / FRAMES;
    }
    sort_figures(round, ROUNDS);
    return round[ROUNDS / 2];
}

int main(void) {
    printf("{\"numbers_ns\": %.1f, \"with_frames_ns\": %.1f}\n", median(0), median(1));
    return 0;
}
