/* The serving side of the exchange, byte by byte, without sockets. */
#include "../harness.h"
#include <runtime/answer.h>
#include <runtime/server.h>
#include <runtime/wire.h>
#include <talloc.h>

enum { MOST_RANKS = 4, ROOM = 4096 };

/* What each rank was sent and has not looked at. */
static struct {
    uint8_t bytes[ROOM];
    size_t len;
} mail[MOST_RANKS];

static void deliver(void *arg, uint32_t rank, struct run_answer *answer) {
    if (mail[rank].len + answer->len > ROOM) abort();
    memcpy(mail[rank].bytes + mail[rank].len, answer->bytes, answer->len);
    mail[rank].len += answer->len;
}

static struct run_server *serve(uint32_t size) {
    memset(mail, 0, sizeof mail);
    return weft__run_server_create(NULL, size, deliver, NULL);
}

/* In two pieces, cut at `cut`. */
static weft_status_t send_cut(struct run_server *s, uint32_t rank, uint32_t round, const char *text,
                              size_t cut) {
    struct run_frame frame = {RUN_GATHER, round, (uint32_t)strlen(text)};
    uint8_t bytes[256];
    weft__run_encode(&frame, bytes);
    memcpy(bytes + RUN_HEADER, text, frame.len);
    size_t len = RUN_HEADER + frame.len;
    if (cut > len) cut = len;
    weft_status_t st = weft__run_server_bytes(s, rank, bytes, cut);
    return st < 0 ? st : weft__run_server_bytes(s, rank, bytes + cut, len - cut);
}

static weft_status_t send_msg(struct run_server *s, uint32_t rank, uint32_t round,
                              const char *text) {
    return send_cut(s, rank, round, text, 0);
}

/* The rank's next message: its type, its round, its payload; 0 when there is none. */
static int read_mail(uint32_t rank, uint32_t *round_p, char payload[256], weft_status_t *status_p) {
    struct run_frame frame;
    if (mail[rank].len == 0) return 0;
    if (weft__run_decode(mail[rank].bytes, mail[rank].len, &frame) != WEFT_OK) return -1;
    memcpy(payload, mail[rank].bytes + RUN_HEADER, frame.len);
    payload[frame.len] = 0;
    if (frame.type == RUN_DENIED) *status_p = weft__run_decode_status(payload, frame.len);
    *round_p = frame.round;
    mail[rank].len -= RUN_HEADER + frame.len;
    memmove(mail[rank].bytes, mail[rank].bytes + RUN_HEADER + frame.len, mail[rank].len);
    return (int)frame.type;
}

static void check_all(uint32_t rank, uint32_t round, const char *all) {
    char payload[256];
    uint32_t got;
    weft_status_t st;
    CHECK_EQ(read_mail(rank, &got, payload, &st), RUN_ALL);
    CHECK_EQ(got, round);
    CHECK(strcmp(payload, all) == 0);
}

static void check_denied(uint32_t rank, uint32_t round, weft_status_t why) {
    char payload[256];
    uint32_t got;
    weft_status_t st = WEFT_OK;
    CHECK_EQ(read_mail(rank, &got, payload, &st), RUN_DENIED);
    CHECK_EQ(got, round);
    CHECK_EQ(st, why);
}

static struct run_answer *kept[MOST_RANKS];
static void keep(void *arg, uint32_t rank, struct run_answer *answer) {
    answer->n_users++;
    kept[rank] = answer;
}

/* All ranks that a round is over for are sent one frame, whatever it says. */
TEST(ranks_share_their_answer) {
    for (int refused = 0; refused < 2; refused++) {
        struct run_server *s = weft__run_server_create(NULL, MOST_RANKS, keep, NULL);
        size_t quiet = talloc_total_size(s);
        for (uint32_t i = 0; i < MOST_RANKS - 1; i++) CHECK_EQ(send_msg(s, i, 1, "8 bytes."), 0);
        if (refused)
            weft__run_server_gone(s, MOST_RANKS - 1);
        else
            CHECK_EQ(send_msg(s, MOST_RANKS - 1, 1, "8 bytes."), WEFT_OK);
        CHECK_EQ(weft__run_server_open(s), 0);
        uint32_t n_users = MOST_RANKS - (uint32_t)refused;
        CHECK_EQ(kept[0]->n_users, n_users);
        CHECK_EQ(kept[0]->len, RUN_HEADER + (refused ? 4 : MOST_RANKS * 8));
        for (uint32_t i = 0; i < n_users; i++) CHECK(kept[i] == kept[0]);
        while (n_users-- > 0) weft__run_answer_release(kept[0]);
        CHECK_EQ(talloc_total_size(s), quiet);
        talloc_free(s);
    }
}

/* What has come of a round is not kept with its refusal, which may wait for a slow rank. */
TEST(a_refusal_takes_the_memory_of_a_refusal) {
    static char long_one[200];
    struct run_server *s = weft__run_server_create(NULL, 1000, keep, NULL);
    size_t quiet = talloc_total_size(s);
    memset(long_one, 'x', sizeof long_one - 1);
    CHECK_EQ(send_msg(s, 0, 1, long_one), WEFT_OK);
    CHECK(talloc_total_size(s) > 1000 * (sizeof long_one - 1));
    weft__run_server_gone(s, 1);
    CHECK(kept[0] && talloc_total_size(s) < quiet + 1000);
    weft__run_answer_release(kept[0]);
    talloc_free(s);
}

TEST(everybody_gets_everybodys_bytes_in_rank_order) {
    struct run_server *s = serve(3);
    CHECK_EQ(send_msg(s, 2, 1, "cc"), WEFT_OK);
    CHECK_EQ(send_msg(s, 0, 1, "aa"), WEFT_OK);
    CHECK_EQ(mail[0].len + mail[2].len, 0);
    CHECK_EQ(send_msg(s, 1, 1, "bb"), WEFT_OK);
    for (uint32_t i = 0; i < 3; i++) check_all(i, 1, "aabbcc");
    CHECK_EQ(weft__run_server_open(s), 0);
    talloc_free(s);
}

TEST(bytes_may_come_cut_anywhere) {
    for (size_t cut = 0; cut <= RUN_HEADER + 2; cut++) {
        struct run_server *s = serve(2);
        CHECK_EQ(send_cut(s, 0, 1, "aa", cut), WEFT_OK);
        CHECK_EQ(send_cut(s, 1, 1, "bb", cut), WEFT_OK);
        check_all(0, 1, "aabb");
        talloc_free(s);
    }
}

TEST(a_rank_that_cancelled_runs_ahead) {
    struct run_server *s = serve(2);
    CHECK_EQ(send_msg(s, 0, 1, "a1"), WEFT_OK);
    CHECK_EQ(send_msg(s, 0, 2, "a2"), WEFT_OK);
    CHECK_EQ(weft__run_server_open(s), 2);
    CHECK_EQ(send_msg(s, 1, 1, "b1"), WEFT_OK);
    CHECK_EQ(send_msg(s, 1, 2, "b2"), WEFT_OK);
    check_all(0, 1, "a1b1");
    check_all(0, 2, "a2b2");
    CHECK_EQ(weft__run_server_open(s), 0);
    talloc_free(s);
}

TEST(running_ahead_has_an_end) {
    struct run_server *s = serve(2);
    weft_status_t st = WEFT_OK;
    uint32_t round = 0;
    while (st == WEFT_OK && round < 1000) st = send_msg(s, 0, ++round, "a");
    CHECK_EQ(st, WEFT_ERR_QUOTA);
    CHECK_EQ(round, 17);
    talloc_free(s);
}

TEST(who_waits_for_a_dead_rank_is_refused) {
    struct run_server *s = serve(3);
    CHECK_EQ(send_msg(s, 0, 1, "a"), WEFT_OK);
    weft__run_server_gone(s, 2);
    check_denied(0, 1, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(send_msg(s, 1, 1, "b"), WEFT_OK);
    check_denied(1, 1, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(weft__run_server_open(s), 0);
    CHECK_EQ(send_msg(s, 1, 2, "b"), WEFT_OK); /* and so are rounds that begin later */
    check_denied(1, 2, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(mail[0].len, 0);
    talloc_free(s);
}

TEST(a_rank_that_leaves_after_its_contribution_hinders_no_one) {
    struct run_server *s = serve(2);
    CHECK_EQ(send_msg(s, 0, 1, "a"), WEFT_OK);
    weft__run_server_gone(s, 0);
    CHECK_EQ(send_msg(s, 1, 1, "b"), WEFT_OK);
    check_all(1, 1, "ab");
    CHECK_EQ(mail[0].len, 0);
    talloc_free(s);
}

TEST(contributions_of_different_lengths_are_refused_to_all) {
    struct run_server *s = serve(3);
    CHECK_EQ(send_msg(s, 0, 1, "a"), WEFT_OK);
    CHECK_EQ(send_msg(s, 1, 1, "bb"), WEFT_OK);
    CHECK_EQ(send_msg(s, 2, 1, "c"), WEFT_OK);
    for (uint32_t i = 0; i < 3; i++) check_denied(i, 1, WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft__run_server_open(s), 0);
    talloc_free(s);
}

TEST(a_round_out_of_order_ends_only_its_rank) {
    struct run_server *s = serve(2);
    CHECK_EQ(send_msg(s, 0, 2, "a"), WEFT_ERR_PROTOCOL);
    CHECK_EQ(send_msg(s, 1, 1, "b"), WEFT_OK);
    CHECK_EQ(send_msg(s, 1, 1, "b"), WEFT_ERR_PROTOCOL); /* the same twice */
    talloc_free(s);
}

TEST(junk_is_named_and_leaks_nothing) {
    struct run_server *s = serve(2);
    uint8_t junk[64];
    uint32_t seed = 7;
    for (int round = 0; round < 2000; round++) {
        for (size_t i = 0; i < sizeof junk; i++)
            junk[i] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
        if (round % 2) memcpy(junk, "WRUN\1", 5);
        struct run_server *other = weft__run_server_create(s, 2, deliver, NULL);
        weft_status_t st = weft__run_server_bytes(other, 0, junk, sizeof junk);
        CHECK(st <= WEFT_OK);
        weft__run_server_gone(other, 0);
        talloc_free(other);
    }
    CHECK_EQ(talloc_total_blocks(s), 1);
    talloc_free(s);
}
