/* Who sleeps on its fd is woken by a message, and by space in a full lane. */
#include "conformance.h"
#include <poll.h>

static bool readable(int fd, int ms) {
    return poll(&(struct pollfd){fd, POLLIN, 0}, 1, ms) == 1;
}

static void settle(struct reactor *r, int fd) {
    do weft__reactor_progress(r, 0);
    while (readable(fd, 0));
}

/* b sleeps on its fd; each message makes it readable. */
static void a_message_wakes_a_sleeper(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    if (!(p.iface_b->attr.caps & CAP_WAKEUP) || p.clock) {
        pair_close(&p);
        return;
    }
    int fd = weft__reactor_fd(p.reactor_b);
    CHECK(fd >= 0);
    for (uint64_t i = 0; i < 200; i++) {
        settle(p.reactor_b, fd);
        enum form form = (enum form)(i % N_FORMS);
        struct spec spec = {i, form, is_short(form) ? 20 : 2000, 0, 1};
        struct counted c = counted(1);
        CHECK(post(p.a.lane, &spec, &c.completion) >= 0);
        if (p.reactor_a != p.reactor_b) weft__reactor_progress(p.reactor_a, 0);
        CHECK(readable(fd, (int)test_timeout(20000)));
        double give_up = test_now() + test_timeout(60);
        while (p.b.n_messages == i && test_now() < give_up) {
            CHECK(readable(fd, (int)test_timeout(20000)));
            weft__reactor_progress(p.reactor_b, 0);
        }
        CHECK_EQ(p.b.n_messages, i + 1);
        if (p.reactor_a != p.reactor_b) weft__reactor_progress(p.reactor_a, 0);
    }
    pair_close(&p);
}

/* a sleeps with a full lane; the space that b makes wakes it, and nothing else drives it. */
static void space_wakes_a_sleeper(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    if (!(p.iface_b->attr.caps & CAP_WAKEUP) || p.clock || p.reactor_a == p.reactor_b) {
        pair_close(&p);
        return;
    }
    int fd = weft__reactor_fd(p.reactor_a);
    struct expect e = {.len = 3000};
    p.b.on_message = check_in_order;
    p.b.arg = &e;
    struct stream stream = {.from = &p.a, .spec = bcopy_spec, .until = 5000};
    stream_start(&stream);
    CHECK_EQ(stream.waits, 1);
    double give_up = test_now() + test_timeout(60);
    while (e.next < 5000 && test_now() < give_up) {
        weft__reactor_progress(p.reactor_b, 0);
        if (readable(fd, 0)) weft__reactor_progress(p.reactor_a, 0);
    }
    CHECK_EQ(e.next, 5000);
    CHECK_EQ(e.wrong, 0);
    pair_close(&p);
}

#define CASES(C, s)                 \
    C(s, a_message_wakes_a_sleeper) \
    C(s, space_wakes_a_sleeper)

SUBJECTS(TESTS_OF)
