/* The store's answers: what they take while they are not read, and their bytes. */
#include "../harness.h"
#include <endpoints/core/worker.h>
#include <runtime/view/store_server.h>
#include <runtime/wire.h>
#include <talloc.h>
#include <tests/network.h>
#include <tests/support/clock.h>
#include <tests/support/reserved_port.h>
#include <weft/weft.h>

enum { RANKS = 64, LEN = 16384, ALL = RUN_HEADER + RANKS * LEN };

static struct {
    weft_context_t *context;
    weft_worker_t *worker;
    struct store_server *server;
    int line[RANKS];
} w;
static uint8_t answer[ALL];

static void begin(void) {
    struct reserved_port port = port_reserve();
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons(port.port)};
    struct addrinfo info = {.ai_family = AF_INET, .ai_addr = (void *)&at, .ai_addrlen = sizeof at};
    CHECK_EQ(weft_context_create(NULL, &w.context), WEFT_OK);
    CHECK_EQ(weft_worker_create(w.context, NULL, &w.worker), WEFT_OK);
    CHECK_EQ(
        weft__store_server_start(w.worker, w.worker->reactor, &info, RANKS, &w.line[0], &w.server),
        WEFT_OK);
    close(port.fd);
    for (uint32_t i = 1; i < RANKS; i++) {
        w.line[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK_EQ(connect(w.line[i], (struct sockaddr *)&at, sizeof at), 0);
    }
}

static void end(void) {
    for (uint32_t i = 0; i < RANKS; i++)
        if (w.line[i] >= 0) close(w.line[i]);
    weft__store_server_stop(w.server);
    weft_worker_progress(w.worker, 0);
    talloc_free(w.server);
    weft_worker_destroy(w.worker);
    CHECK_EQ(weft_context_destroy(w.context), WEFT_OK);
}

static void read_bytes(uint32_t rank, void *to, size_t len) {
    size_t have = 0;
    for (double until = test_now() + test_timeout(60); have < len && test_now() < until;) {
        bool busy = weft_worker_progress(w.worker, 0) > 0;
        ssize_t n = recv(w.line[rank], (char *)to + have, len - have, MSG_DONTWAIT);
        if (n > 0) have += (size_t)n;
        test_idle(busy || n > 0);
    }
    CHECK_EQ(have, len);
}

/* Its hello, and its contribution. */
static void contribute(uint32_t rank) {
    uint8_t hello[STORE_HELLO], status[STORE_ANSWER], frame[RUN_HEADER + LEN];
    weft__store_hello(hello, rank, RANKS);
    CHECK_EQ(send(w.line[rank], hello, sizeof hello, 0), sizeof hello);
    read_bytes(rank, status, sizeof status);
    CHECK_EQ(weft__store_answer(status), WEFT_OK);
    weft__run_encode(&(struct run_frame){RUN_GATHER, 1, LEN}, frame);
    memset(frame + RUN_HEADER, (int)rank, LEN);
    CHECK_EQ(send(w.line[rank], frame, sizeof frame, MSG_DONTWAIT), sizeof frame);
}

static bool has_come(uint32_t rank) {
    char byte;
    return recv(w.line[rank], &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

static void check_answer(uint32_t rank) {
    struct run_frame frame;
    read_bytes(rank, answer, ALL);
    CHECK_EQ(weft__run_decode(answer, ALL, &frame), WEFT_OK);
    CHECK(frame.type == RUN_ALL && frame.round == 1 && frame.len == RANKS * LEN);
    for (uint32_t i = 0; i < RANKS; i++) {
        const uint8_t *of = answer + RUN_HEADER + (size_t)i * LEN;
        CHECK(of[0] == (uint8_t)i && of[LEN - 1] == (uint8_t)i);
    }
}

/* All ranks are sent the same bytes: one copy does. */
TEST(answers_that_are_not_read_take_the_memory_of_one) {
    begin();
    for (uint32_t i = 0; i < RANKS; i++) contribute(i);
    size_t most = 0;
    for (double until = test_now() + test_timeout(60);
         !has_come(RANKS - 1) && test_now() < until;) {
        test_idle(weft_worker_progress(w.worker, 0) > 0);
        size_t held = talloc_total_size(w.server);
        if (held > most) most = held;
    }
    printf("  %d ranks, answers of %d KiB: %zu KiB\n", RANKS, ALL / 1024, most / 1024);
    CHECK(most <= 3 * (size_t)ALL);
    for (uint32_t i = 0; i < RANKS; i++) check_answer(i);
    CHECK(talloc_total_size(w.server) < ALL / 2);
    end();
}

/* One rank leaves with an answer that it has not read. The others get theirs. */
TEST(a_rank_that_leaves_with_its_answer_unread_costs_the_others_nothing) {
    begin();
    for (uint32_t i = 0; i < RANKS; i++) contribute(i);
    for (double until = test_now() + test_timeout(60); !has_come(3) && test_now() < until;)
        test_idle(weft_worker_progress(w.worker, 0) > 0);
    close(w.line[3]);
    w.line[3] = -1;
    for (uint32_t i = 0; i < RANKS; i++)
        if (i != 3) check_answer(i);
    end();
}
