/* Lanes report their work to their owner: all bytes, in few words, and never with each short
 * message. */
#include "pair.h"
#include <transports/sim/sim.h>

static uint64_t bytes, calls;
static struct lane *teller;
static void worked(struct lane *lane, uint64_t n) {
    teller = lane;
    bytes += n;
    calls++;
}

static void make_network(struct reactor_clock *clock) {
    weft__sim_use(weft__sim_create(
        clock, 1, &(struct sim_profile){.reliable = true, .latency_ns = 1000, .depth = 1000}));
}

static struct iface_up up;
static void begin(struct pair *p, const struct transport *transport, const char *rings) {
    const weft_setting_t setting = {"shm.rings", rings};
    bool simulated = transport == &weft__transport_sim;
    pair_clock_made = make_network;
    pair_open_with(p, transport, simulated ? PAIR_VIRTUAL : 0, &setting, 1);
    up = *p->iface_a->up;
    up.worked = worked;
    p->iface_a->up = &up;
    pair_connect(p);
    bytes = calls = 0;
}

static size_t sent;
static size_t pack(void *to, void *arg) {
    memset(to, 1, *(size_t *)arg);
    return *(size_t *)arg;
}
static void completed(struct completion *completion, weft_status_t status) {}

static void send_all(struct pair *p, char form, size_t len, size_t n) {
    static char memory[100000];
    static struct completion completion;
    struct lane *lane = p->a.lane;
    completion = (struct completion){.done = completed, .count = 1000000};
    for (size_t before = p->b.n_messages, i = 0; i < n; i++) {
        weft_status_t st = WEFT_OK;
        do {
            weft_iov_t iov = {memory, len};
            if (form == 's') st = lane->ops->am_short(lane, 1, 0, memory, len);
            if (form == 'b') st = lane->ops->am_bcopy(lane, 1, pack, &len);
            if (form == 'z')
                st = lane->ops->am_zcopy(lane, 1, &(struct lane_zcopy){NULL, 0, &iov, 1},
                                         &completion);
            if (st == WEFT_NO_RESOURCE) pair_turn(p);
        } while (st == WEFT_NO_RESOURCE);
        CHECK(st >= 0);
        sent += len;
        if (i % 256 == 255) CHECK(pair_until(p, p->b.n_messages == before + i + 1));
    }
    pair_turns(p, 10);
}

/* What may not be reported yet: a ring, a window, or a turn of messages. */
static void all_is_notified(const struct transport *transport, const char *rings) {
    static const struct {
        char form;
        size_t len, n;
    } cases[] = {{'s', 8, 20000}, {'b', 2000, 2000}, {'z', 3000, 2000}, {'z', 50000, 500}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pair p;
        begin(&p, transport, rings);
        sent = 0;
        send_all(&p, cases[i].form, cases[i].len, cases[i].n);
        CHECK(teller == p.a.lane);
        CHECK((double)bytes > 0.8 * (double)sent);
        CHECK(bytes <= sent + cases[i].n * 64 + 4096);
        if (cases[i].form == 's') CHECK(calls <= cases[i].n / 16);
        CHECK(calls <= 2 * cases[i].n + 10);
        pair_close(&p);
    }
}

TEST(a_ring_notifies) {
    all_is_notified(&weft__transport_shm, "64");
}
TEST(a_mailbox_notifies) {
    all_is_notified(&weft__transport_shm, "0");
}
TEST(tcp_notifies) {
    all_is_notified(&weft__transport_tcp, "0");
}
TEST(a_simulated_lane_notifies) {
    all_is_notified(&weft__transport_sim, "0");
}
