/* Our own descriptors, or our memory, run out: what needs them fails or waits, and no peer is
 * blamed for it. */
#include "pair.h"
#include "rma_target.h"
#include <base/counters.h>
#include <errno.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <tests/support/scarce_descriptors.h>
#include <transports/shm/lane/shm.h>
#include <transports/shm/memory/directory.h>

static uint64_t violations(const struct pair *p) {
    return weft__count(p->reactor_a)->violations + weft__count(p->reactor_b)->violations;
}

TEST(a_key_whose_memory_cannot_be_had_goes_by_messages_and_its_lane_lives) {
    struct pair p;
    struct target t;
    struct md_mem *mem;
    struct lane_key *keys[2];
    uint8_t packed[16];
    pair_open(&p, &weft__transport_shm, 0);
    pair_connect(&p);
    target_open(&t, TARGET_PAGE, WEFT_MEM_ALL, true);
    CHECK_EQ(p.iface_b->ops->mem->mem_register(p.iface_b, &t.region, &mem), WEFT_OK);
    size_t len = p.iface_b->ops->mem->key_pack(mem, packed);
    CHECK_EQ(p.a.lane->ops->rma->key_open(p.a.lane, &t.remote, packed, len, &keys[0]), WEFT_OK);
    descriptors_leave(0);
    bool answered = pair_until(&p, strcmp(keys[0]->how, "asked for") != 0 || p.a.n_down);
    descriptors_give_back();
    CHECK(answered);
    CHECK_EQ(p.a.n_down, 0);
    CHECK_EQ(keys[0]->status, WEFT_NO_RESOURCE); /* messages will do */
    CHECK_EQ(strcmp(keys[0]->how, weft_status_name(WEFT_ERR_NO_FDS)), 0);
    CHECK_EQ(p.a.lane->ops->rma->key_open(p.a.lane, &t.remote, packed, len, &keys[1]), WEFT_OK);
    CHECK(pair_until(&p, keys[1]->status == WEFT_OK && keys[1]->local));
    CHECK_EQ(violations(&p), 0);
    pair_close(&p);
    target_close(&t);
}

TEST(a_boot_id_that_cannot_be_read_for_want_of_descriptors_is_no_missing_one) {
    char text[512];
    uint8_t host[16];
    descriptors_leave(0);
    weft_status_t status = weft__shm_host(host);
    descriptors_give_back();
    CHECK_EQ(status, WEFT_ERR_NO_FDS);
    weft_status_describe(status, text, sizeof text);
    CHECK(strstr(text, "the boot id: Too many open files"));
    CHECK_EQ(weft__shm_host(host), WEFT_OK);
}

static void b_turns(struct pair *p, const struct end *b) {
    for (int i = 0; i < 20 && !b->n_open; i++) weft__reactor_progress(p->reactor_b, 0);
}

/* With some of what a handshake needs, but never all. Both sides are notified, the one that has too
 * few by its log. */
TEST(a_handshake_without_room_for_its_descriptors_is_refused_for_want_of_them) {
    struct pair p;
    char notified[4096] = "";
    int log = memfd_create("log", MFD_CLOEXEC), standard_error = dup(STDERR_FILENO);
    pair_open(&p, &weft__transport_shm, 0);
    CHECK(dup2(log, STDERR_FILENO) >= 0);
    for (int n = 0; n < SHM_N_FDS; n++) {
        struct end a = {0}, b = {0};
        CHECK_EQ(pair_dial(&p, &a, &b), WEFT_OK);
        descriptors_leave(1 + n);
        b_turns(&p, &b);
        descriptors_give_back();
        CHECK_EQ(b.n_open, 0);
        CHECK(pair_until(&p, a.n_down == 1));
        CHECK_EQ(a.down, WEFT_ERR_NO_FDS);
        pair_end_close(&a, true);
    }
    CHECK(dup2(standard_error, STDERR_FILENO) >= 0);
    CHECK(pread(log, notified, sizeof notified - 1, 0) > 0 &&
          strstr(notified, "refused a connection: WEFT_ERR_NO_FDS"));
    close(standard_error);
    close(log);
    CHECK_EQ(violations(&p), 0);
    pair_connect(&p);
    pair_close(&p);
}

TEST(an_answer_without_room_for_its_descriptors_fails_for_want_of_them) {
    struct pair p;
    pair_open(&p, &weft__transport_shm, 0);
    for (int n = 0; n < SHM_N_FDS; n++) {
        struct end a = {0}, b = {0};
        CHECK_EQ(pair_dial(&p, &a, &b), WEFT_OK);
        b_turns(&p, &b);
        descriptors_leave(n);
        for (int i = 0; i < 20 && !a.n_down; i++) weft__reactor_progress(p.reactor_a, 0);
        descriptors_give_back();
        CHECK_EQ(a.n_down, 1);
        CHECK_EQ(a.down, WEFT_ERR_NO_FDS);
        CHECK(pair_until(&p, b.n_down == 1));
        pair_end_close(&a, true);
        pair_end_close(&b, true);
    }
    CHECK_EQ(violations(&p), 0);
    pair_connect(&p);
    pair_close(&p);
}

/* ---- timers ---------------------------------------------------------------------------------- */

enum { TIMERS = 128 };

static void never(struct timer *timer) {}

/* No further timer can be had, until memory comes back. */
static void take_all_timers(struct reactor *r, struct timer timers[TIMERS]) {
    weft__alloc_fail_run(1, UINT64_MAX);
    unsigned n = 0;
    do {
        CHECK(n < TIMERS);
        timers[n].fire = never;
    } while (weft__timer_start(r, &timers[n++], UINT64_MAX) == WEFT_OK);
}

static void give_back_timers(struct reactor *r, struct timer timers[TIMERS]) {
    weft__alloc_fail_run(0, 0);
    for (unsigned i = 0; i < TIMERS; i++) weft__timer_stop(r, &timers[i]);
}

/* The other side is not driven: it never answers. */
static void close_without_a_timer(bool by_mail, bool flush) {
    struct pair p;
    struct timer timers[TIMERS] = {0};
    pair_open_with(&p, &weft__transport_shm, 0,
                   (weft_setting_t[]){{"shm.rings", by_mail ? "0" : "8"}}, 1);
    pair_connect(&p);
    take_all_timers(p.reactor_a, timers);
    p.a.lane->ops->close(p.a.lane, flush);
    for (int i = 0; i < 10; i++) weft__reactor_progress(p.reactor_a, 0);
    give_back_timers(p.reactor_a, timers);
    CHECK_EQ(p.a.n_closed, 1);
    CHECK_EQ(p.b.n_down, 0);
    CHECK(pair_until(&p, p.b.n_down == 1));
    CHECK_EQ(p.b.down, WEFT_ERR_PEER_CLOSED);
    pair_close(&p);
}

TEST(a_close_without_a_timer_does_not_wait_for_a_peer_that_hangs) {
    for (int what = 0; what < 4; what++) close_without_a_timer(what & 1, what & 2);
}

/* Who has dialed waits in its queue. */
TEST(a_listener_without_descriptors_and_timers_accepts_when_there_are_some) {
    struct pair p;
    struct timer timers[TIMERS] = {0};
    pair_open(&p, &weft__transport_shm, 0);
    CHECK_EQ(pair_dial(&p, &p.a, &p.b), WEFT_OK);
    descriptors_leave(0);
    take_all_timers(p.reactor_b, timers);
    for (int i = 0; i < 10; i++) weft__reactor_progress(p.reactor_b, 0);
    give_back_timers(p.reactor_b, timers);
    descriptors_give_back();
    CHECK_EQ(p.b.n_open, 0);
    CHECK(pair_until(&p, p.a.n_open == 1 && p.b.n_open == 1));
    pair_close(&p);
}

static bool epoll_is_full;

/* The library's calls come here, too. */
__attribute__((visibility("default"))) int epoll_ctl(int epoll, int op, int fd,
                                                     struct epoll_event *event) {
    if (!epoll_is_full || op == EPOLL_CTL_DEL)
        return (int)syscall(SYS_epoll_ctl, epoll, op, fd, event);
    errno = ENOMEM;
    return -1;
}

TEST(a_listener_that_cannot_be_watched_again_tries_once_more) {
    struct pair p;
    pair_open(&p, &weft__transport_shm, 0);
    CHECK(weft__reactor_fd(p.reactor_b) >= 0);
    CHECK_EQ(pair_dial(&p, &p.a, &p.b), WEFT_OK);
    descriptors_leave(0);
    for (int i = 0; i < 10; i++) weft__reactor_progress(p.reactor_b, 0);
    descriptors_give_back();
    epoll_is_full = true;
    for (double end = test_now() + 0.2; test_now() < end; usleep(1000))
        weft__reactor_progress(p.reactor_b, 0);
    epoll_is_full = false;
    CHECK_EQ(p.b.n_open, 0);
    CHECK(pair_until(&p, p.a.n_open == 1 && p.b.n_open == 1));
    pair_close(&p);
}
