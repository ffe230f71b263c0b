/* Processes' side of the exchange: several in one process, each over a socket to a server that
 * the test pumps. */
#include "../harness.h"
#include <runtime/answer.h>
#include <runtime/exchange.h>
#include <runtime/server.h>
#include <sys/socket.h>
#include <talloc.h>
#include <weft/weft.h>

enum { SIZE = 3, LEN = 8 };

static struct world {
    weft_context_t *context;
    weft_worker_t *worker;
    struct run_server *server;
    int lines[SIZE]; /* the server's ends; -1: hung up */
    struct run_client *clients[SIZE];
    weft_status_t status[SIZE]; /* of the last round; IN_PROGRESS: none yet */
    int calls[SIZE];
    char all[SIZE][SIZE * LEN];
} w;

static void write_bytes(uint32_t rank, const void *data, size_t len) {
    if (w.lines[rank] >= 0 && send(w.lines[rank], data, len, MSG_NOSIGNAL) != (ssize_t)len) abort();
}

static void to_rank(void *arg, uint32_t rank, struct run_answer *answer) {
    write_bytes(rank, answer->bytes, answer->len);
}

static void hang_up(uint32_t rank) {
    close(w.lines[rank]);
    w.lines[rank] = -1;
    weft__run_server_gone(w.server, rank);
}

static void pump(void) {
    char bytes[4096];
    for (uint32_t i = 0; i < SIZE; i++) {
        ssize_t n = w.lines[i] < 0 ? -1 : recv(w.lines[i], bytes, sizeof bytes, MSG_DONTWAIT);
        if (n == 0) hang_up(i);
        if (n > 0 && weft__run_server_bytes(w.server, i, bytes, (size_t)n) < 0) hang_up(i);
    }
}

/* A worker that is only polled asks the kernel now and then, not each time. */
static void turn(int times) {
    times *= 100;
    while (times-- > 0) {
        pump();
        weft_worker_progress(w.worker, 0);
    }
}

static void set_up(void) {
    memset(&w, 0, sizeof w);
    CHECK_EQ(weft_context_create(NULL, &w.context), WEFT_OK);
    CHECK_EQ(weft_worker_create(w.context, NULL, &w.worker), WEFT_OK);
    w.server = weft__run_server_create(NULL, SIZE, to_rank, NULL);
    for (uint32_t i = 0; i < SIZE; i++) {
        int pair[2];
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        w.lines[i] = pair[0];
        CHECK_EQ(weft__run_client_create(pair[1], i, SIZE, &w.clients[i]), WEFT_OK);
    }
}

static void tear_down(void) {
    for (uint32_t i = 0; i < SIZE; i++) {
        if (w.clients[i]) weft__run_client_free(w.clients[i]);
        if (w.lines[i] >= 0) close(w.lines[i]);
    }
    talloc_free(w.server);
    weft_worker_destroy(w.worker);
    CHECK_EQ(weft_context_destroy(w.context), WEFT_OK);
}

static void on_done(weft_status_t status, void *arg) {
    size_t rank = (size_t)arg;
    w.status[rank] = status;
    w.calls[rank]++;
}

static weft_status_t gather_len(uint32_t rank, const char *mine, size_t len) {
    const weft_exchange_t *x = weft__run_client_exchange(w.clients[rank]);
    w.status[rank] = WEFT_IN_PROGRESS;
    return x->allgather(x->arg, w.worker, mine, len, w.all[rank], on_done, (void *)(size_t)rank);
}

static weft_status_t gather(uint32_t rank, const char mine[LEN + 1]) {
    return gather_len(rank, mine, LEN);
}

static void cancel(uint32_t rank) {
    const weft_exchange_t *x = weft__run_client_exchange(w.clients[rank]);
    x->cancel(x->arg);
}

TEST(all_ranks_get_all_contributions) {
    set_up();
    for (int round = 0; round < 3; round++) {
        memset(w.all, 0, sizeof w.all);
        for (uint32_t i = 0; i < SIZE; i++)
            CHECK_EQ(gather(i, i == 0 ? "zero...." : i == 1 ? "one....." : "two....."), WEFT_OK);
        turn(10);
        for (uint32_t i = 0; i < SIZE; i++) {
            CHECK_EQ(w.status[i], WEFT_OK);
            CHECK_EQ(w.calls[i], round + 1);
            CHECK(memcmp(w.all[i], "zero....one.....two.....", SIZE * LEN) == 0);
        }
    }
    tear_down();
}

TEST(done_never_comes_within_the_call) {
    set_up();
    for (uint32_t i = 0; i < SIZE; i++) {
        CHECK_EQ(gather(i, "........"), WEFT_OK);
        pump();
        CHECK_EQ(w.calls[i], 0);
    }
    turn(10);
    CHECK_EQ(w.calls[0], 1);
    tear_down();
}

TEST(one_exchange_at_a_time) {
    set_up();
    CHECK_EQ(gather(0, "........"), WEFT_OK);
    CHECK_EQ(gather(0, "........"), WEFT_ERR_BUSY);
    turn(3);
    CHECK_EQ(w.calls[0], 0);
    CHECK_EQ(gather(1, "........"), WEFT_OK);
    CHECK_EQ(gather(2, "........"), WEFT_OK);
    turn(10);
    CHECK_EQ(w.calls[0], 1);
    tear_down();
}

TEST(a_cancelled_round_is_never_reported_and_the_next_works) {
    set_up();
    CHECK_EQ(gather(0, "stale..."), WEFT_OK);
    turn(3);
    cancel(0);
    CHECK_EQ(gather(1, "b1......"), WEFT_OK);
    CHECK_EQ(gather(2, "c1......"), WEFT_OK);
    turn(10);
    CHECK_EQ(w.calls[0], 0);
    CHECK_EQ(w.calls[1], 1); /* rank 0 had contributed */
    CHECK_EQ(gather(0, "a2......"), WEFT_OK);
    CHECK_EQ(gather(1, "b2......"), WEFT_OK);
    CHECK_EQ(gather(2, "c2......"), WEFT_OK);
    turn(10);
    CHECK_EQ(w.calls[0], 1);
    CHECK_EQ(w.status[0], WEFT_OK);
    CHECK(memcmp(w.all[0], "a2......b2......c2......", SIZE * LEN) == 0);
    tear_down();
}

TEST(cancelled_before_it_left_it_still_counts_for_the_others) {
    set_up();
    CHECK_EQ(gather(0, "a1......"), WEFT_OK);
    cancel(0); /* nothing is written yet: it goes out with the next */
    CHECK_EQ(gather(0, "a2......"), WEFT_OK);
    for (int round = 1; round <= 2; round++) {
        CHECK_EQ(gather(1, "b......."), WEFT_OK);
        CHECK_EQ(gather(2, "c......."), WEFT_OK);
        turn(10);
        CHECK_EQ(w.calls[1], round);
    }
    CHECK_EQ(w.calls[0], 1);
    CHECK(memcmp(w.all[0], "a2......b.......c.......", SIZE * LEN) == 0);
    tear_down();
}

TEST(a_dead_sibling_fails_the_round) {
    set_up();
    weft__run_client_free(w.clients[2]);
    w.clients[2] = NULL;
    CHECK_EQ(gather(0, "........"), WEFT_OK);
    CHECK_EQ(gather(1, "........"), WEFT_OK);
    turn(10);
    CHECK_EQ(w.status[0], WEFT_ERR_PEER_FAILED);
    CHECK_EQ(w.status[1], WEFT_ERR_PEER_FAILED);
    CHECK_EQ(w.calls[0], 1);
    tear_down();
}

TEST(the_loss_of_weft_run_fails_the_round_and_refuses_the_next) {
    set_up();
    CHECK_EQ(gather(0, "........"), WEFT_OK);
    turn(3);
    hang_up(0);
    turn(10);
    CHECK_EQ(w.status[0], WEFT_ERR_PEER_FAILED);
    CHECK_EQ(w.calls[0], 1);
    CHECK_EQ(gather(0, "........"), WEFT_ERR_PEER_FAILED);
    CHECK_EQ(w.calls[0], 1);
    tear_down();
}

static void send_msg(uint32_t rank, enum run_type type, uint32_t round, uint32_t len) {
    struct run_frame frame = {type, round, len};
    uint8_t header[RUN_HEADER], zeros[256] = {0};
    weft__run_encode(&frame, header);
    write_bytes(rank, header, sizeof header);
    write_bytes(rank, zeros, len);
}

TEST(what_weft_run_may_not_send_breaks_the_exchange_only) {
    static const struct {
        enum run_type type;
        uint32_t round, len;
    } lies[] = {{RUN_ALL, 2, SIZE * LEN},
                {RUN_ALL, 0, 0},
                {RUN_ALL, 1, SIZE * LEN - 1},
                {RUN_GATHER, 1, LEN},
                {RUN_DENIED, 7, 4}};
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        set_up();
        CHECK_EQ(gather(0, "........"), WEFT_OK);
        send_msg(0, lies[i].type, lies[i].round, lies[i].len);
        turn(5);
        CHECK_EQ(w.status[0], WEFT_ERR_PROTOCOL);
        CHECK_EQ(w.calls[0], 1);
        tear_down();
    }
}

TEST(an_answer_may_come_cut_anywhere) {
    set_up();
    struct run_frame frame = {RUN_ALL, 1, SIZE * LEN};
    uint8_t bytes[RUN_HEADER + SIZE * LEN];
    weft__run_encode(&frame, bytes);
    memset(bytes + RUN_HEADER, 'x', SIZE * LEN);
    CHECK_EQ(gather(0, "........"), WEFT_OK);
    for (size_t i = 0; i < sizeof bytes; i++) {
        CHECK_EQ(w.calls[0], 0);
        write_bytes(0, bytes + i, 1);
        for (int k = 0; k < 100; k++) weft_worker_progress(w.worker, 0);
    }
    turn(10);
    CHECK_EQ(w.calls[0], 1);
    CHECK_EQ(w.all[0][SIZE * LEN - 1], 'x');
    tear_down();
}

TEST(too_much_is_refused_with_its_limit) {
    set_up();
    static char big[RUN_MAX_MINE + 1];
    CHECK_EQ(gather_len(0, big, sizeof big), WEFT_ERR_TOO_BIG);
    tear_down();
}

TEST(alone_one_has_everything) {
    char all[LEN] = "";
    CHECK(!getenv("WEFT_RUN_RANK"));
    const weft_exchange_t *x = weft_run_exchange();
    CHECK(x != NULL);
    CHECK(x == weft_run_exchange());
    CHECK_EQ(x->rank, 0);
    CHECK_EQ(x->size, 1);
    w.calls[0] = 0;
    CHECK_EQ(x->allgather(x->arg, NULL, "alone...", LEN, all, on_done, (void *)0), WEFT_OK);
    CHECK_EQ(w.calls[0], 1);
    CHECK(memcmp(all, "alone...", LEN) == 0);
}

/* weft-run gives a descriptor to each process that it starts, to one that is alone, too. */
TEST(the_descriptor_is_closed_in_programs_that_are_started) {
    for (uint32_t size = 1; size <= 2; size++) {
        struct run_client *client;
        int pair[2];
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        CHECK_EQ(weft__run_client_create(pair[1], 0, size, &client), WEFT_OK);
        CHECK_EQ(fcntl(pair[1], F_GETFD), FD_CLOEXEC);
        weft__run_client_free(client);
        close(pair[0]);
    }
}
