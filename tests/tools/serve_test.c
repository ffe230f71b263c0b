/* The sockets of weft-run's exchange: what answers take that are not read, and their bytes. */
#include "../harness.h"
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <runtime/wire.h>
#include <sys/socket.h>
#include <tests/network.h>
#include <tests/support/clock.h>
#include <tools/run/serve.h>

enum { RANKS = 128, LEN = 8192, ALL = RUN_HEADER + RANKS * LEN };

static int line[RANKS]; /* the ends of the ranks */
static uint8_t answer[ALL];

static struct serving *open_lines(struct ev_loop *loop) {
    struct serving *s = serving_open(loop, "weft-run", RANKS);
    CHECK(s);
    for (uint32_t i = 0; i < RANKS; i++) {
        int pair[2];
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        fcntl(pair[0], F_SETFL, O_NONBLOCK);
        serving_add(s, i, pair[0]);
        line[i] = pair[1];
    }
    return s;
}

static void contribute(uint32_t rank, uint32_t round) {
    uint8_t frame[RUN_HEADER + LEN];
    weft__run_encode(&(struct run_frame){RUN_GATHER, round, LEN}, frame);
    memset(frame + RUN_HEADER, (int)(rank + round), LEN);
    CHECK_EQ(send(line[rank], frame, sizeof frame, 0), sizeof frame);
}

static bool has_come(uint32_t rank) {
    struct pollfd at = {line[rank], POLLIN, 0};
    return poll(&at, 1, 0) > 0;
}

static void read_answer(struct ev_loop *loop, uint32_t rank, uint32_t round) {
    struct run_frame frame;
    size_t have = 0;
    for (double end = test_now() + test_timeout(60); have < ALL && test_now() < end;) {
        ev_run(loop, EVRUN_NOWAIT);
        ssize_t n = recv(line[rank], answer + have, ALL - have, MSG_DONTWAIT);
        if (n > 0) have += (size_t)n;
        test_idle(n > 0);
    }
    CHECK_EQ(have, ALL);
    CHECK_EQ(weft__run_decode(answer, ALL, &frame), WEFT_OK);
    CHECK(frame.type == RUN_ALL && frame.round == round && frame.len == RANKS * LEN);
    for (uint32_t i = 0; i < RANKS; i++) {
        const uint8_t *of = answer + RUN_HEADER + (size_t)i * LEN;
        CHECK(of[0] == (uint8_t)(i + round) && of[LEN - 1] == (uint8_t)(i + round));
    }
}

static size_t allocated(void) {
    struct mallinfo2 now = mallinfo2();
    return now.uordblks + now.hblkhd;
}

/* All ranks are sent the same bytes: one copy does, and a rank that reads late gets all of them. */
TEST(answers_that_are_not_read_take_the_memory_of_one_each_round) {
    enum { ROUNDS = 2 };
    struct ev_loop *loop = ev_loop_new(0);
    struct serving *s = open_lines(loop);
    size_t before = allocated();
    for (uint32_t round = 1; round <= ROUNDS; round++)
        for (uint32_t i = 0; i < RANKS; i++) {
            contribute(i, round);
            ev_run(loop, EVRUN_NOWAIT);
        }
    for (double end = test_now() + test_timeout(60); !has_come(RANKS - 1) && test_now() < end;) {
        ev_run(loop, EVRUN_NOWAIT);
        test_idle(false);
    }
    CHECK(has_come(RANKS - 1));
    size_t held = allocated() - before;
    printf("  %d ranks, answers of %d KiB: %zu KiB\n", RANKS, ALL / 1024, held / 1024);
    CHECK(held <= (ROUNDS + 1) * ALL);
    for (uint32_t i = 0; i < RANKS; i++)
        for (uint32_t round = 1; round <= ROUNDS; round++) read_answer(loop, i, round);
    CHECK(allocated() - before < ALL / 2);
    for (uint32_t i = 0; i < RANKS; i++) close(line[i]);
    serving_close(s);
    ev_loop_destroy(loop);
}

/* One rank leaves with answers that it has not read. The others get theirs. */
TEST(a_rank_that_leaves_with_answers_unread_costs_the_others_nothing) {
    struct ev_loop *loop = ev_loop_new(0);
    struct serving *s = open_lines(loop);
    for (uint32_t i = 0; i < RANKS; i++) {
        contribute(i, 1);
        ev_run(loop, EVRUN_NOWAIT);
    }
    close(line[3]);
    for (uint32_t i = 0; i < RANKS; i++)
        if (i != 3) read_answer(loop, i, 1);
    for (uint32_t i = 0; i < RANKS; i++)
        if (i != 3) close(line[i]);
    serving_close(s);
    ev_loop_destroy(loop);
}
