/* A peer that says what it likes about links that outlive their lanes: tickets, counts, acknowledgements. */
#include "raw.h"

#include <endpoints/lane_wire.h>
#include <reactor/host.h>

static struct raw raw;

/* The worker's answer has a ticket. */
static struct wire_hello greet(struct wire_hello hello) {
    struct wire_message m;
    struct wire_hello answer = {0};
    raw.n_heard = 0;
    hello.version = WIRE_VERSION;
    if (!hello.worker) hello.worker = RAW_ID;
    weft__wire_hello(&m, hello);
    CHECK(say_message(&raw, &m));
    RAW_UNTIL(&raw, heard(&raw, WIRE_HELLO)); /* also when it is refused */
    for (unsigned i = 0; i < raw.n_heard; i++)
        if (raw.heard[i].id == WIRE_HELLO)
            (void)weft__wire_read_hello(raw.heard[i].bytes, raw.heard[i].len, &answer);
    return answer;
}

static struct wire_hello begin(void) {
    raw_open(&raw, "tcp", NULL, 0);
    raw_dial(&raw, "tcp");
    struct wire_hello answer = greet((struct wire_hello){.flags = WIRE_HELLO_EXTRA | WIRE_HELLO_SURVIVES});
    CHECK(weft__hello_has_ticket(&answer) && answer.flags & WIRE_HELLO_SURVIVES);
    open_half(&raw);
    return answer;
}

/* Another lane, while the first one stands. */
static struct lane *dial_again(void) {
    struct lane *first = raw.lane;
    raw.lane = NULL;
    raw_dial(&raw, "tcp");
    return first;
}

static void end(struct lane *first) {
    if (first) first->ops->close(first, false);
    for (int i = 0; i < 100; i++) raw_turn(&raw);
    raw_close(&raw);
}

static struct wire_hello resume(const struct wire_hello *told, uint32_t epoch, uint64_t delivered) {
    struct wire_hello hello = {.flags = WIRE_HELLO_EXTRA | WIRE_HELLO_SURVIVES | WIRE_HELLO_RESUME,
                               .epoch = epoch,
                               .delivered = delivered};
    memcpy(hello.ticket, told->ticket, sizeof hello.ticket);
    return hello;
}

/* ---- tickets --------------------------------------------------------------------------------------------------------- */

TEST(a_ticket_that_was_made_up_gets_nothing) {
    struct wire_hello told = begin();
    struct lane *first = dial_again();
    told.ticket[3] ^= 1;
    struct wire_hello answer = greet(resume(&told, 1, 0));
    CHECK(!(answer.flags & WIRE_HELLO_RESUME));
    RAW_UNTIL(&raw, raw.down);
    CHECK_EQ(raw.victim_errors, 0);
    CHECK_EQ(weft_worker_count(raw.t.a, "lanes.resumed"), 0);
    end(first);
}

TEST(a_ticket_of_another_worker_gets_nothing) {
    struct wire_hello told = begin();
    struct lane *first = dial_again();
    struct wire_hello stolen = resume(&told, 1, 0);
    stolen.worker = RAW_ID + 1;
    CHECK(!(greet(stolen).flags & WIRE_HELLO_RESUME));
    CHECK_EQ(raw.victim_errors, 0);
    CHECK_EQ(weft_worker_count(raw.t.a, "lanes.resumed"), 0);
    end(first);
}

/* What the worker sent is counted: ACCEPT, and the word about its process. */
TEST(a_ticket_takes_over_once_for_each_try) {
    struct wire_hello told = begin();
    struct lane *first = dial_again();
    struct wire_hello answer = greet(resume(&told, 5, 0));
    CHECK(answer.flags & WIRE_HELLO_RESUME && answer.epoch == 5 && answer.delivered == 1); /* our OPEN */
    RAW_UNTIL(&raw, heard(&raw, WIRE_ACCEPT));                                             /* again */
    CHECK_EQ(weft_worker_count(raw.t.a, "lanes.resumed"), 1);
    struct lane *second = dial_again();
    CHECK(!(greet(resume(&told, 5, 0)).flags & WIRE_HELLO_RESUME)); /* late */
    RAW_UNTIL(&raw, raw.down);
    CHECK_EQ(weft_worker_count(raw.t.a, "lanes.resumed"), 1);
    CHECK_EQ(raw.victim_errors, 0);
    first->ops->close(first, false);
    end(second);
}

TEST(counts_that_cannot_be_lose_the_link) {
    struct wire_hello told = begin();
    struct lane *first = dial_again();
    (void)greet(resume(&told, 1, 1000));
    RAW_UNTIL(&raw, raw.victim_errors == 1);
    CHECK_EQ(raw.victim_error, WEFT_ERR_PROTOCOL);
    end(first);
}

/* ---- words ------------------------------------------------------------------------------------------------------------- */

static void word_loses_the_link(const struct wire_message *m) {
    (void)begin();
    CHECK(say_message(&raw, m));
    RAW_UNTIL(&raw, raw.victim_errors == 1);
    CHECK_EQ(raw.victim_error, WEFT_ERR_PROTOCOL);
    end(NULL);
}

TEST(who_acknowledges_what_was_not_sent_is_cut) {
    struct wire_message m;
    weft__lane_count(&m, LANE_ACK, 1000);
    word_loses_the_link(&m);
    weft__lane_count(&m, LANE_ACK, UINT64_MAX);
    word_loses_the_link(&m);
}

TEST(who_takes_an_acknowledgement_back_is_cut) {
    struct wire_message m;
    (void)begin();
    weft__lane_count(&m, LANE_ACK, 1);
    CHECK(say_message(&raw, &m));
    for (int i = 0; i < 100; i++) raw_turn(&raw);
    CHECK_EQ(raw.victim_errors, 0);
    weft__lane_count(&m, LANE_ACK, 0);
    CHECK(say_message(&raw, &m));
    RAW_UNTIL(&raw, raw.victim_errors == 1);
    CHECK_EQ(raw.victim_error, WEFT_ERR_PROTOCOL);
    end(NULL);
}

TEST(words_that_are_garbled_are_cut) {
    static const enum lane_kind kinds[] = {LANE_ACK, LANE_ACK_ASK, LANE_BEAT_ASK, LANE_BEAT, LANE_PROCESS};
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct wire_message m;
        weft__lane_count(&m, kinds[i], 1);
        m.len -= 1;
        word_loses_the_link(&m);
    }
}

TEST(who_names_a_process_of_its_own_choice_harms_itself_at_most) {
    static const uint32_t pids[] = {1, 0x7fffffff};
    for (int i = 0; i < 2; i++) {
        struct wire_message m;
        struct wire_hello told = begin();
        weft__lane_process(&m, (struct lane_process){.host = weft__host_id("pid"), .pid = pids[i]});
        CHECK(say_message(&raw, &m));
        struct lane *first = dial_again();
        CHECK(greet(resume(&told, 1, 0)).flags & WIRE_HELLO_RESUME);
        CHECK_EQ(raw.victim_errors, 0);
        end(first);
    }
}
