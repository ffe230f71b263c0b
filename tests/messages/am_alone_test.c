/* Active messages without an endpoint to reply on, and endpoints that go as their first message
 * comes. */
#include <endpoints/core/worker.h>
#include <endpoints/messages/am.h>

#include <tests/support/worker_pair.h>

enum {
    ALONE = 0,
    /* the smallest id: its word is not the one of zeros, which has no owner */ BIG = 1 << 24
};

struct received {
    int calls, with_ep, with_data;
    size_t len, header_len;
    char data[64];
    char order[16];
};

static void on_alone(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct received *h = arg;
    h->with_ep += ep != NULL;
    h->with_data += am->data != NULL;
    h->len = am->len;
    h->header_len = am->header_len;
    if (am->len <= sizeof h->data) memcpy(h->data, am->data, am->len);
    h->order[h->calls++ % 16] = ep ? 'e' : 'a';
}

#define NO_REPLY (&(weft_op_t){.flags = WEFT_AM_NO_REPLY})

TEST_EACH(a_message_that_wants_no_reply_comes_without_an_endpoint) {
    struct two t;
    struct received h = {0};
    two_up(&t, transport);
    CHECK_EQ(weft_am_handler_set(two_b(&t), ALONE, on_alone, &h), WEFT_OK);
    weft_iov_t iov = {"payload", 8};
    CHECK_EQ(weft_am_send(t.ep, ALONE, "head", 4, &iov, 1, NO_REPLY), WEFT_OK);
    UNTIL(&t, h.calls == 1);
    CHECK_EQ(h.with_ep, 0);
    CHECK(h.len == 8 && h.header_len == 4 && strcmp(h.data, "payload") == 0);
    two_down(&t);
}

TEST_EACH(a_message_that_wants_no_reply_keeps_its_place) {
    struct two t;
    struct received h = {0};
    two_up(&t, transport);
    CHECK_EQ(weft_am_handler_set(two_b(&t), ALONE, on_alone, &h), WEFT_OK);
    for (int i = 0; i < 8; i++)
        CHECK(weft_am_send(t.ep, ALONE, NULL, 0, NULL, 0, i % 2 ? NO_REPLY : NULL) >= 0);
    UNTIL(&t, h.calls == 8);
    CHECK(memcmp(h.order, "eaeaeaea", 8) == 0);
    two_down(&t);
}

TEST_EACH(what_fits_no_one_message_is_refused_without_a_reply) {
    struct two t;
    two_up(&t, transport);
    char *big = calloc(1, BIG);
    weft_iov_t iov = {big, BIG};
    CHECK_EQ(weft_am_send(t.ep, ALONE, NULL, 0, &iov, 1, NO_REPLY), WEFT_ERR_TOO_BIG);
    two_down(&t);
    free(big);
}

/* Above the threshold of offers, which worker_pair.h sets at 64 KiB, as below it; and a sender that
 * asks for both, too. */
TEST_EACH(what_wants_no_reply_crosses_whole_wherever_eager_does) {
    enum { MOST = 100 << 10 };
    static const uint32_t flags[] = {WEFT_AM_EAGER, WEFT_AM_NO_REPLY,
                                     WEFT_AM_EAGER | WEFT_AM_RENDEZVOUS,
                                     WEFT_AM_NO_REPLY | WEFT_AM_RENDEZVOUS};
    static const size_t sizes[] = {8, 40 << 10, MOST};
    static char bytes[MOST];
    struct two t;
    struct received h = {0};
    int sent = 0;
    two_up(&t, transport);
    CHECK_EQ(weft_am_handler_set(two_b(&t), ALONE, on_alone, &h), WEFT_OK);
    for (size_t i = 0; i < 12; i++) {
        weft_iov_t iov = {bytes, sizes[i / 4]};
        CHECK(weft_am_send(t.ep, ALONE, NULL, 0, &iov, 1, &(weft_op_t){.flags = flags[i % 4]}) >=
              0);
        sent++;
        UNTIL(&t, h.calls == sent);
        CHECK(h.len == sizes[i / 4] && h.with_data == sent);
    }
    two_down(&t);
}

/* The link is up; the second endpoint's other half is not even asked for. */
TEST_EACH(a_message_that_wants_no_reply_needs_only_the_link) {
    struct two t;
    struct received h = {0};
    two_up(&t, transport);
    CHECK_EQ(weft_am_handler_set(two_b(&t), ALONE, on_alone, &h), WEFT_OK);
    weft_ep_t *first = t.ep;
    two_dial(&t);
    CHECK(t.ep != first);
    CHECK_EQ(weft_am_send(t.ep, ALONE, NULL, 0, NULL, 0, NO_REPLY), WEFT_OK);
    UNTIL(&t, h.calls == 1);
    CHECK_EQ(h.with_ep, 0);
    two_down(&t);
}

TEST(what_belongs_to_the_library_is_not_received_without_an_endpoint) {
    struct two t;
    two_up(&t, "shm");
    weft_ep_on_error(t.back, two_on_back_error, &t);
    struct am_send_args reserved = {.id = AM_ID_RESERVED, .op = NO_REPLY};
    CHECK_EQ(weft__am_send(t.ep, &reserved), WEFT_OK);
    UNTIL(&t, t.back_errors == 1);
    CHECK_EQ(t.back_error, WEFT_ERR_PROTOCOL);
    two_down(&t);
}

/* Notified of an endpoint by its first message, the program wants none of it. */
static void refuse_it(weft_ep_t *ep, void *arg) {
    ((struct two *)arg)->endpoints++;
    CHECK_EQ(weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL), WEFT_IN_PROGRESS);
}

TEST_EACH(an_endpoint_may_be_closed_when_its_first_message_notifies_of_it) {
    struct two t;
    two_workers(&t, transport, NULL, 0);
    two_b(&t)->on_endpoint = refuse_it;
    two_dial(&t);
    CHECK_EQ(weft_am_send(t.ep, ALONE, NULL, 0, NULL, 0, NULL), WEFT_IN_PROGRESS);
    UNTIL(&t, t.endpoints == 1 && t.errors == 1);
    two_down(&t);
}
