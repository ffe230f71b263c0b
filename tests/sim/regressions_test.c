/* Bugs that the simulation found, as it minimised them: what is left of each seed (tools/sim
 * --seed S --minimise). */
#include "../harness.h"

#include <stdio.h>
#include <tools/simulate/apart.h>

static void expect_good(const struct plan *plan) {
    struct verdict verdict;
    apart_run(plan, &verdict);
    if (verdict.failed) printf("# %s\n", verdict.what);
    CHECK(!verdict.failed);
}

#define ITEMS(list) .item = (list), .n_items = sizeof(list) / sizeof *(list)
#define LANES                                        \
    {"lanes.switch", "on"}, {"lanes.tick", "1ms"}, { \
        "lanes.min_rate", "1m"                       \
    }

/* BACK could not be sent, and the end of the lane passed it. */
TEST(a_link_goes_back_to_its_base_lane_although_the_word_comes_behind_the_end) {
    static struct plan_item items[] = {
        {0, PLAN_DIAL, 0, 2, 3, 0, 1},           {0, PLAN_DIAL, 1, 0, 3, 0, 2},
        {11006786, PLAN_STREAM, 0, 1, 8, 0, 12}, {19852887, PLAN_PAUSE, 3, 2, 2, 23820184, 62},
        {30316381, PLAN_GET, 1, 0, 30, 2, 41},   {32689820, PLAN_AM, 0, 1, 8, 3, 55},
    };
    expect_good(
        &(struct plan){.seed = 2376,
                       .n_workers = 4,
                       .network = PLAN_DATAGRAM,
                       .scarce = 1,
                       .depth = 128,
                       .chaos_ns = 93577924,
                       .setting = {{"window.bytes", "64k"}, LANES, {"lanes.min_hold", "2ms"}},
                       .n_settings = 5,
                       ITEMS(items)});
}

/* Words about another lane were lost with the lane that said them. */
TEST(a_lane_dies_while_another_is_negotiated_and_no_one_is_blamed) {
    static struct plan_item items[] = {
        {0, PLAN_DIAL, 1, 1, 0, 0, 2},         {64492, PLAN_PAUSE, 1, 0, 0, 8047406, 76},
        {593220, PLAN_AM, 1, 0, 36, 2, 11},    {3538185, PLAN_PAUSE, 1, 0, 0, 21482597, 77},
        {18592040, PLAN_KILL, 1, 0, 0, 0, 69},
    };
    expect_good(&(struct plan){.seed = 3537,
                               .n_workers = 2,
                               .network = PLAN_DATAGRAM,
                               .scarce = 1,
                               .survive = 1,
                               .depth = 128,
                               .chaos_ns = 22824855,
                               .setting = {{"lanes.switch", "on"}, {"lanes.tick", "1ms"}},
                               .n_settings = 2,
                               ITEMS(items)});
}

/* Its tracker slept, adopted it, and slept on. */
TEST(an_idle_link_gives_its_lane_back_although_its_tracker_slept) {
    static struct plan_item items[] = {
        {10386253, PLAN_DIAL, 2, 1, 2, 0, 3},
        {11965059, PLAN_GET, 2, 0, 1, 0, 16},
    };
    expect_good(&(struct plan){.seed = 1186,
                               .n_workers = 3,
                               .network = PLAN_RELIABLE,
                               .scarce = 1,
                               .depth = 128,
                               .chaos_ns = 21419990,
                               .setting = {LANES, {"lanes.decay", "50"}},
                               .n_settings = 4,
                               ITEMS(items)});
}

/* Links that survive report where they run. */
TEST(a_run_is_the_same_whatever_process_it_is_in) {
    static struct plan_item items[] = {{0, PLAN_DIAL, 0, 0, 1, 0, 1},
                                       {1000000, PLAN_AM, 0, 0, 8, 2, 2}};
    struct plan plan = {.seed = 700,
                        .n_workers = 2,
                        .network = PLAN_RELIABLE,
                        .survive = 1,
                        .depth = 128,
                        .chaos_ns = 2000000,
                        ITEMS(items)};
    struct verdict one, other;
    apart_run(&plan, &one);
    apart_run(&plan, &other);
    CHECK(!one.failed && !other.failed && one.hash == other.hash);
}

/* Its place was free for another, and its lane was there. */
TEST(a_link_whose_base_lane_died_has_a_place_for_its_scarce_one) {
    static struct plan_item items[] = {
        {0, PLAN_DIAL, 16, 0, 2, 0, 17},
        {3790024, PLAN_KILL, 0, 2, 1, 2093515, 95},
    };
    expect_good(&(struct plan){.seed = 52,
                               .n_workers = 5,
                               .network = PLAN_RELIABLE,
                               .scarce = 2,
                               .depth = 128,
                               .chaos_ns = 166393238,
                               .setting = {LANES, {"lanes.decay", "50"}},
                               .n_settings = 4,
                               ITEMS(items)});
}

/* There was no memory for the negotiation, and the epoch of the request was forgotten. */
TEST(a_question_that_there_was_no_memory_for_was_asked_all_the_same) {
    static struct plan_item items[] = {
        {0, PLAN_DIAL, 2, 0, 1, 0, 3},
        {0, PLAN_DIAL, 3, 1, 4, 0, 4},
        {0, PLAN_DIAL, 4, 2, 1, 0, 5},
        {0, PLAN_JITTER, 0, 0, 0, 13551, 26},
        {1236435, PLAN_PAUSE, 2, 3, 2, 1673490, 27},
        {1594010, PLAN_DIAL, 1, 2, 1, 0, 2},
        {2033380, PLAN_STREAM, 4, 1, 1, 3, 22},
        {2497139, PLAN_CLOSE, 2, 0, 1, 2, 14},
        {2804537, PLAN_NO_MEMORY, 2, 0, 2, 96, 29},
        {2877448, PLAN_AM, 3, 0, 6, 3, 20},
    };
    expect_good(&(struct plan){.seed = 7000483,
                               .n_workers = 5,
                               .network = PLAN_DATAGRAM,
                               .scarce = 4,
                               .depth = 128,
                               .chaos_ns = 6483272,
                               .setting = {{"rendezvous.threshold", "1k"},
                                           {"stream.window", "4k"},
                                           {"window.bytes", "64k"},
                                           LANES,
                                           {"lanes.backoff", "2ms"}},
                               .n_settings = 7,
                               ITEMS(items)});
}

/* A link had moved on, the acknowledgement of its last words by the old lane was lost, and so
 * was a flush. */
TEST(a_flush_outlives_the_lane_that_its_link_leaves) {
    static struct plan_item items[] = {
        {0, PLAN_DIAL, 0, 0, 1, 0, 1},
        {0, PLAN_DIAL, 1, 3, 2, 0, 2},
        {0, PLAN_DIAL, 2, 3, 2, 0, 3},
        {0, PLAN_DIAL, 3, 3, 2, 0, 4},
        {0, PLAN_DIAL, 4, 0, 2, 0, 5},
        {0, PLAN_DIAL, 9, 1, 0, 0, 10},
        {0, PLAN_DIAL, 11, 3, 2, 0, 12},
        {0, PLAN_DIAL, 12, 1, 0, 0, 13},
        {0, PLAN_DIAL, 14, 4, 0, 0, 15},
        {0, PLAN_DIAL, 15, 3, 2, 0, 16},
        {0, PLAN_DIAL, 16, 1, 3, 0, 17},
        {0, PLAN_DIAL, 17, 4, 0, 0, 18},
        {0, PLAN_DIAL, 19, 2, 4, 0, 20},
        {0, PLAN_DIAL, 21, 1, 2, 0, 22},
        {0, PLAN_DIAL, 22, 1, 2, 0, 23},
        {0, PLAN_DIAL, 23, 1, 3, 0, 24},
        {0, PLAN_DIAL, 24, 0, 4, 0, 25},
        {0, PLAN_DIAL, 25, 3, 2, 0, 26},
        {0, PLAN_DIAL, 26, 1, 3, 0, 27},
        {0, PLAN_DIAL, 28, 0, 3, 0, 29},
        {0, PLAN_DIAL, 29, 4, 2, 0, 30},
        {0, PLAN_LOSS, 0, 0, 0, 146164, 52},
        {0, PLAN_JITTER, 0, 0, 0, 17960, 53},
        {0, PLAN_EXHAUSTION, 0, 0, 0, 140572, 54},
        {624077, PLAN_FETCH, 3, 0, 5, 1, 42},
        {9131683, PLAN_DIAL, 5, 3, 0, 0, 6},
        {9950552, PLAN_DIAL, 20, 3, 0, 0, 21},
        {10499070, PLAN_DIAL, 18, 3, 4, 0, 19},
        {18962577, PLAN_STREAM, 18, 0, 7, 3, 35},
        {50758635, PLAN_PAUSE, 4, 0, 2, 14820280, 58},
    };
    expect_good(&(struct plan){.seed = 21128,
                               .n_workers = 5,
                               .network = PLAN_DATAGRAM,
                               .scarce = 4,
                               .depth = 8,
                               .chaos_ns = 59278669,
                               .setting = {{"stream.window", "64k"},
                                           {"lanes.switch", "on"},
                                           {"lanes.tick", "1ms"},
                                           {"lanes.min_rate", "8m"},
                                           {"lanes.min_hold", "10ms"}},
                               .n_settings = 5,
                               ITEMS(items)});
}

/* All was acknowledged before the lane gave back the memory in flight; a sender that waited for
 * room was not asked again. */
TEST(memory_that_comes_back_late_makes_room_for_who_waits) {
    static struct plan_item items[] = {
        {0, PLAN_DIAL, 2, 3, 0, 0, 3},
        {4512613, PLAN_AM, 2, 1, 56, 3, 45},
    };
    expect_good(&(struct plan){.seed = 347,
                               .n_workers = 4,
                               .network = PLAN_DATAGRAM,
                               .scarce = 4,
                               .survive = 1,
                               .depth = 128,
                               .chaos_ns = 21524459,
                               .setting = {{"failover.retain_bytes", "64k"}},
                               .n_settings = 1,
                               ITEMS(items)});
}

/* A word of a switch that there was no memory for was never said, and both sides waited for it. */
TEST(a_switch_that_there_is_no_memory_for_ends_its_link) {
    static struct plan_item items[] = {
        {0, PLAN_DIAL, 5, 3, 2, 0, 6},
        {0, PLAN_DIAL, 10, 3, 1, 0, 11},
        {0, PLAN_DIAL, 20, 2, 0, 0, 21},
        {0, PLAN_DIAL, 29, 2, 3, 0, 30},
        {0, PLAN_DIAL, 30, 3, 1, 0, 31},
        {0, PLAN_DIAL, 31, 0, 3, 0, 32},
        {0, PLAN_JITTER, 0, 0, 0, 7133, 67},
        {18676944, PLAN_FETCH, 20, 0, 2, 0, 44},
        {22467265, PLAN_DIAL, 6, 1, 3, 0, 7},
        {49673783, PLAN_TAG, 31, 0, 9, 0, 34},
        {50392485, PLAN_STREAM, 5, 1, 13, 3, 35},
        {62317276, PLAN_NO_MEMORY, 2, 19, 1, 106, 73},
        {63283802, PLAN_PUT, 30, 0, 10, 1, 47},
        {65028576, PLAN_DIAL, 2, 1, 2, 0, 3},
        {65254285, PLAN_DIAL, 25, 2, 3, 0, 26},
        {75895217, PLAN_AM, 20, 1, 6, 2, 43},
        {77126142, PLAN_STREAM, 20, 1, 6, 1, 45},
        {78627304, PLAN_STREAM, 6, 0, 6, 1, 63},
        {93329914, PLAN_AM, 6, 0, 14, 3, 56},
    };
    expect_good(&(struct plan){.seed = 2205735,
                               .n_workers = 4,
                               .network = PLAN_DATAGRAM,
                               .scarce = 4,
                               .depth = 128,
                               .chaos_ns = 131143443,
                               .setting = {{"rendezvous.threshold", "8k"},
                                           {"window.bytes", "64k"},
                                           {"link.rails", "2"},
                                           LANES,
                                           {"lanes.min_hold", "10ms"},
                                           {"lanes.backoff", "2ms"}},
                               .n_settings = 8,
                               ITEMS(items)});
}

/* Answers to flushes took the places of those to what a peer may ask for at once. */
TEST(a_peer_that_keeps_to_its_window_is_served) {
    static struct plan_item items[] = {
        {0, PLAN_DIAL, 0, 1, 0, 0, 1},        {0, PLAN_DIAL, 1, 1, 0, 0, 2},
        {448402, PLAN_AM, 0, 1, 12, 3, 28},   {500887, PLAN_CUT, 0, 1, 0, 7712803, 52},
        {618454, PLAN_FETCH, 0, 0, 1, 3, 25}, {662793, PLAN_CUT, 1, 0, 1, 3555375, 50},
        {871146, PLAN_FLUSH, 1, 0, 1, 3, 11}, {989173, PLAN_ADD, 1, 0, 208, 0, 45},
        {1276106, PLAN_AM, 1, 1, 3, 2, 37},
    };
    expect_good(
        &(struct plan){.seed = 2205931,
                       .n_workers = 2,
                       .network = PLAN_RELIABLE,
                       .scarce = 1,
                       .survive = 1,
                       .depth = 128,
                       .chaos_ns = 1399169,
                       .setting = {{"rma.max_served", "128"}, {"failover.retain_bytes", "64k"}},
                       .n_settings = 2,
                       ITEMS(items)});
}

/* The lane came in the turn in which time ran out. */
TEST(a_lane_that_comes_at_the_last_moment_has_come) {
    static struct plan_item items[] = {
        {0, PLAN_DIAL, 0, 2, 4, 0, 1},
        {0, PLAN_DELAY, 0, 0, 1, 77407, 16},
        {823241, PLAN_AM, 0, 0, 5, 3, 13},
        {2909922, PLAN_PAUSE, 4, 1, 0, 935942564, 25},
    };
    expect_good(&(struct plan){.seed = 2409717,
                               .n_workers = 5,
                               .network = PLAN_RELIABLE,
                               .scarce = 2,
                               .heartbeat_ms = 250,
                               .depth = 128,
                               .chaos_ns = 4983179,
                               .setting = {{"rendezvous.threshold", "8k"},
                                           {"lanes.switch", "on"},
                                           {"lanes.tick", "1ms"},
                                           {"lanes.min_rate", "8m"},
                                           {"lanes.reply_timeout", "2ms"}},
                               .n_settings = 5,
                               ITEMS(items)});
}

/* The peer had lost the lane and said so while this side stood still: both came in one
 * turn. */
TEST(a_lane_that_is_called_off_when_it_has_come_is_lost_in_its_turn) {
    static struct plan_item items[] = {
        {0, PLAN_DIAL, 4, 1, 3, 0, 5},
        {0, PLAN_LOSS, 0, 0, 0, 95708, 52},
        {17430565, PLAN_PAUSE, 3, 5, 2, 123994316, 63},
        {39592420, PLAN_WITHDRAW, 1, 0, 0, 30696323, 61},
    };
    expect_good(&(struct plan){.seed = 2410725,
                               .n_workers = 6,
                               .network = PLAN_DATAGRAM,
                               .scarce = 4,
                               .hurried = 5,
                               .depth = 128,
                               .chaos_ns = 53052547,
                               .setting = {LANES, {"lanes.decay", "50"}},
                               .n_settings = 4,
                               ITEMS(items)});
}

/* The peer closed the lane that both had left while a flush still counted it, and then the
 * flush's other half came. */
TEST(a_flush_of_two_lanes_survives_the_one_that_both_have_left) {
    static struct plan_item items[] = {
        {0, PLAN_DIAL, 3, 0, 2, 0, 4},
        {0, PLAN_JITTER, 0, 0, 0, 10051, 23},
        {2395691, PLAN_TAG, 3, 0, 11, 1, 19},
        {3743011, PLAN_AM, 3, 1, 5, 2, 18},
        {4875563, PLAN_CUT, 0, 2, 1, 2687772, 25},
        {5187244, PLAN_DIAL, 5, 2, 0, 0, 6},
        {8264194, PLAN_STREAM, 5, 0, 1, 0, 16},
        {8601252, PLAN_NO_MEMORY, 1, 0, 0, 164, 27},
    };
    expect_good(&(struct plan){.seed = 2428635,
                               .n_workers = 4,
                               .network = PLAN_RELIABLE,
                               .scarce = 1,
                               .hurried = 27,
                               .depth = 128,
                               .chaos_ns = 11555697,
                               .setting = {{"rendezvous.threshold", "1k"},
                                           {"lanes.switch", "on"},
                                           {"lanes.tick", "1ms"},
                                           {"lanes.min_hold", "2ms"}},
                               .n_settings = 4,
                               ITEMS(items)});
}
TEST(a_flush_that_counted_a_lane_long_left_survives_it) {
    static struct plan_item items[] = {
        {0, PLAN_DIAL, 2, 2, 1, 0, 3},
        {0, PLAN_DIAL, 3, 2, 1, 0, 4},
        {0, PLAN_DIAL, 12, 2, 1, 0, 13},
        {0, PLAN_DIAL, 18, 2, 0, 0, 19},
        {0, PLAN_JITTER, 0, 0, 0, 11962, 94},
        {340551, PLAN_PAUSE, 2, 1, 2, 32880090, 101},
        {609895, PLAN_FETCH, 3, 0, 3, 2, 77},
        {648578, PLAN_DIAL, 8, 1, 2, 0, 9},
        {1091018, PLAN_CUT, 2, 1, 1, 5719299, 97},
        {1791629, PLAN_KILL, 0, 1, 2, 288825, 98},
        {1816917, PLAN_TAG, 3, 0, 1, 3, 60},
    };
    expect_good(&(struct plan){.seed = 2414035,
                               .n_workers = 3,
                               .network = PLAN_RELIABLE,
                               .scarce = 3,
                               .depth = 128,
                               .chaos_ns = 1863383,
                               .setting = {{"lanes.switch", "on"},
                                           {"lanes.tick", "1ms"},
                                           {"lanes.decay", "50"},
                                           {"lanes.min_hold", "10ms"}},
                               .n_settings = 4,
                               ITEMS(items)});
}

/* The target counted answers that had arrived and whose acknowledgement had not; who had them
 * asked for the next. */
TEST(an_answer_that_came_makes_room_for_the_next_question) {
    static struct plan_item items[] = {
        {0, PLAN_DIAL, 13, 0, 1, 0, 14},       {5321665, PLAN_DIAL, 3, 1, 0, 0, 4},
        {20399896, PLAN_DIAL, 9, 1, 0, 0, 10}, {29570200, PLAN_AM, 3, 1, 9, 3, 41},
        {29911407, PLAN_AM, 9, 1, 9, 1, 18},   {30266268, PLAN_GET, 13, 1, 240, 1, 60},
    };
    expect_good(&(struct plan){.seed = 7767,
                               .n_workers = 2,
                               .network = PLAN_DATAGRAM,
                               .depth = 128,
                               .chaos_ns = 42882662,
                               .setting = {{"window.bytes", "64k"}, {"rma.max_served", "128"}},
                               .n_settings = 2,
                               ITEMS(items)});
}

/* The link that was closing named its second lane, which was freed before it, and a failed
 * control message asked who the peer was. */
TEST(a_link_that_closes_names_no_lane_that_is_freed) {
    static struct plan_item items[] = {
        {0, PLAN_DIAL, 0, 1, 2, 0, 1},        {1877830, PLAN_CLOSE, 0, 1, 1, 1, 8},
        {1883488, PLAN_DIAL, 0, 1, 2, 0, 9},  {2101188, PLAN_STRIKE, 0, 1, 3, 12, 66},
        {2101188, PLAN_TAKE, 0, 1, 1, 0, 67}, {2101189, PLAN_TAG, 0, 0, 1, 3, 68},
    };
    expect_good(&(struct plan){.seed = 327,
                               .n_workers = 3,
                               .network = PLAN_RELIABLE,
                               .scarce = 1,
                               .hurried = 20,
                               .heartbeat_ms = 250,
                               .depth = 8,
                               .chaos_ns = 5616783,
                               .setting = {{"tag.unexpected_bytes", "64k"}, LANES},
                               .n_settings = 4,
                               ITEMS(items)});
}

/* The strike came while the messages that a move had held back were delivered: the link was over,
 * and the move went on. */
TEST(a_link_that_ends_while_held_messages_are_delivered_moves_no_more) {
    static struct plan_item items[] = {
        {0, PLAN_DIAL, 0, 4, 3, 0, 1},        {0, PLAN_DELAY, 0, 0, 3, 13984, 38},
        {0, PLAN_JITTER, 0, 0, 0, 16590, 39}, {1704074, PLAN_TAKE, 0, 0, 4, 0, 14},
        {1704074, PLAN_TAKE, 0, 1, 4, 0, 16}, {3408149, PLAN_TAG, 0, 1, 4, 3, 27},
        {3408149, PLAN_TAG, 0, 0, 4, 3, 29},  {10235825, PLAN_WITHDRAW, 3, 1, 0, 163149, 42},
    };
    expect_good(&(struct plan){
        .seed = 673156161,
        .n_workers = 5,
        .network = PLAN_RELIABLE,
        .scarce = 1,
        .exposes = 1,
        .depth = 8,
        .chaos_ns = 13632592,
        .setting = {{"tag.unexpected_bytes", "4k"}, {"lanes.switch", "on"}, {"lanes.tick", "1ms"}},
        .n_settings = 3,
        ITEMS(items)});
}

/* There was no memory to fetch a message that was longer than its receive: this was said to have
 * all that fits. */
TEST(a_receive_that_is_too_short_and_fails_is_not_truncated) {
    static struct plan_item items[] = {
        {0, PLAN_DIAL, 1, 1, 2, 0, 2},
        {0, PLAN_DIAL, 2, 0, 2, 0, 3},
        {0, PLAN_DIAL, 3, 1, 0, 0, 4},
        {0, PLAN_DIAL, 4, 0, 1, 0, 5},
        {149627, PLAN_NO_MEMORY, 1, 54, 1, 107, 133},
        {537925, PLAN_TAKE, 1, 0, 4, 0, 69},
        {537925, PLAN_TAKE, 3, 0, 1, 0, 77},
        {537926, PLAN_TAG, 1, 1, 4, 3, 70},
        {537926, PLAN_TAG, 1, 0, 4, 3, 72},
        {537926, PLAN_TAG, 2, 1, 4, 3, 74},
        {537926, PLAN_TAG, 2, 0, 4, 3, 76},
        {537926, PLAN_TAG, 3, 1, 4, 3, 78},
        {537926, PLAN_TAG, 3, 0, 4, 3, 80},
        {537926, PLAN_TAG, 4, 1, 4, 3, 82},
    };
    expect_good(&(struct plan){.seed = 673143006,
                               .n_workers = 3,
                               .network = PLAN_RELIABLE,
                               .scarce = 2,
                               .exposes = 1,
                               .hurried = 5,
                               .depth = 128,
                               .chaos_ns = 4303404,
                               .setting = {{"rendezvous.threshold", "8k"}},
                               .n_settings = 1,
                               ITEMS(items)});
}

/* The sender could not write the message. Its word came after the lane had ended and the bytes
 * were asked for, and was taken for the end of the message. */
TEST(a_message_that_is_asked_for_again_is_not_ended_by_the_word_about_its_write) {
    static struct plan_item items[] = {
        {0, PLAN_DIAL, 1, 0, 1, 0, 2},
        {0, PLAN_DIAL, 2, 0, 1, 0, 3},
        {0, PLAN_DIAL, 4, 1, 0, 0, 5},
        {4895157, PLAN_TAKE, 4, 0, 4, 0, 32},
        {4895158, PLAN_TAG, 4, 1, 4, 3, 33},
        {4895158, PLAN_TAG, 4, 0, 4, 3, 35},
        {7578004, PLAN_CUT, 0, 1, 0, 22447870, 60},
        {9790314, PLAN_TAKE, 1, 1, 4, 0, 42},
        {9790314, PLAN_TAKE, 4, 1, 4, 0, 54},
        {9790315, PLAN_TAG, 1, 0, 1, 3, 43},
    };
    expect_good(&(struct plan){.seed = 673155549,
                               .n_workers = 2,
                               .network = PLAN_RELIABLE,
                               .scarce = 3,
                               .exposes = 1,
                               .depth = 128,
                               .chaos_ns = 39161261,
                               .setting = {{"rendezvous.threshold", "8k"},
                                           {"lanes.switch", "on"},
                                           {"lanes.tick", "1ms"},
                                           {"lanes.decay", "50"},
                                           {"lanes.min_hold", "2ms"},
                                           {"lanes.backoff", "2ms"}},
                               .n_settings = 6,
                               ITEMS(items)});
}

/* An endpoint without memory left the link before its atomics had ended: their places in the
 * link's window stayed taken, and those of others waited for ever. */
TEST(an_endpoint_that_is_lost_alone_leaves_its_places_to_others) {
    static struct plan_item items[] = {
        {0, PLAN_DIAL, 1, 0, 2, 0, 2},
        {0, PLAN_DIAL, 2, 3, 0, 0, 3},
        {0, PLAN_DIAL, 3, 2, 0, 0, 4},
        {0, PLAN_DIAL, 4, 1, 2, 0, 5},
        {0, PLAN_EXHAUSTION, 0, 0, 0, 64560, 62},
        {3405399, PLAN_PUT, 3, 1, 12, 3, 15},
        {7178302, PLAN_STRIKE, 1, 0, 8, 3, 74},
        {7178303, PLAN_AM, 1, 1, 4, 3, 75},
        {13021708, PLAN_AM, 2, 0, 4, 3, 77},
        {18489602, PLAN_ADD, 1, 0, 240, 3, 41},
        {28982872, PLAN_TAG, 1, 1, 15, 1, 36},
        {31397682, PLAN_PLACE, 2, 1, 4, 3, 71},
        {32983337, PLAN_PUT, 2, 1, 2, 3, 22},
        {39611696, PLAN_ADD, 2, 1, 5, 2, 39},
        {44352013, PLAN_ADD, 2, 0, 8, 3, 57},
        {44912449, PLAN_STRIKE, 1, 0, 1, 4, 84},
        {44912450, PLAN_TAG, 1, 1, 4, 3, 86},
        {49511678, PLAN_ADD, 3, 1, 1, 0, 29},
        {54365769, PLAN_NO_MEMORY, 2, 0, 1, 119, 67},
        {55493075, PLAN_TAG, 4, 0, 4, 3, 80},
        {56228241, PLAN_TAG, 2, 0, 4, 3, 7},
    };
    expect_good(&(struct plan){.seed = 34133,
                               .n_workers = 4,
                               .network = PLAN_RELIABLE,
                               .two_ways = 1,
                               .hurried = 20,
                               .depth = 128,
                               .chaos_ns = 69560875,
                               .setting = {{"rendezvous.threshold", "8k"}},
                               .n_settings = 1,
                               ITEMS(items)});
}

/* The lane could not be expected. The peer gave the attempt up and asked again, all in the turn in
 * which that was found out. */
TEST(a_peer_that_asks_again_in_the_turn_in_which_its_lane_failed_is_not_blamed) {
    static struct plan_item items[] = {
        {0, PLAN_DIAL, 1, 2, 0, 0, 2},        {0, PLAN_LOSS, 0, 0, 0, 201808, 37},
        {0, PLAN_JITTER, 0, 0, 0, 5832, 38},  {27310436, PLAN_AM, 1, 0, 15, 2, 10},
        {32001408, PLAN_AM, 1, 1, 9, 3, 36},  {58977114, PLAN_NO_MEMORY, 2, 43, 0, 48, 39},
        {63700903, PLAN_DIAL, 2, 3, 1, 0, 3}, {78436973, PLAN_TAG, 2, 0, 8, 3, 20},
    };
    expect_good(&(struct plan){.seed = 113641,
                               .n_workers = 4,
                               .network = PLAN_DATAGRAM,
                               .scarce = 4,
                               .depth = 128,
                               .chaos_ns = 128078983,
                               .setting = {{"tag.unexpected_bytes", "4k"},
                                           {"lanes.switch", "on"},
                                           {"lanes.tick", "1ms"},
                                           {"lanes.backoff", "2ms"},
                                           {"lanes.reply_timeout", "2ms"}},
                               .n_settings = 5,
                               ITEMS(items)});
}

/* A receiver learned first that the lane had broken. Its memory was in use again when the sender
 * wrote the piece that it had taken. */
TEST(memory_is_not_written_by_the_peer_of_a_lane_that_has_ended_here) {
    static struct plan_item items[] = {
        {0, PLAN_DIAL, 0, 3, 2, 0, 1},         {0, PLAN_DIAL, 1, 2, 1, 0, 2},
        {0, PLAN_DIAL, 2, 1, 3, 0, 3},         {0, PLAN_DIAL, 4, 0, 1, 0, 5},
        {25541, PLAN_STREAM, 0, 0, 2, 2, 67},  {32722, PLAN_STRIKE, 4, 1, 2, 43, 149},
        {54676, PLAN_AM, 4, 0, 4, 2, 18},      {63567, PLAN_STRIKE, 2, 0, 18, 6238, 120},
        {63568, PLAN_PLACE, 2, 1, 4, 3, 121},  {67644, PLAN_TAKE, 0, 0, 4, 0, 69},
        {67644, PLAN_TAKE, 0, 1, 4, 0, 71},    {67644, PLAN_TAKE, 1, 0, 4, 0, 73},
        {67644, PLAN_TAKE, 1, 1, 4, 0, 75},    {67645, PLAN_TAG, 0, 1, 4, 3, 70},
        {67645, PLAN_TAG, 0, 0, 4, 3, 72},     {67645, PLAN_TAG, 1, 1, 4, 3, 74},
        {67645, PLAN_TAG, 1, 0, 4, 3, 76},     {68662, PLAN_AM, 1, 1, 4, 3, 125},
        {91738, PLAN_TAKE, 0, 0, 4, 0, 137},   {91739, PLAN_TAG, 0, 1, 4, 3, 138},
        {118452, PLAN_TAG, 0, 0, 7, 3, 10},    {120533, PLAN_STREAM, 1, 0, 80, 1, 22},
        {135289, PLAN_TAG, 0, 1, 4, 3, 90},    {135289, PLAN_TAG, 0, 0, 4, 3, 92},
        {135289, PLAN_TAG, 1, 1, 4, 3, 94},    {135289, PLAN_TAG, 1, 0, 4, 3, 96},
        {162315, PLAN_DIAL, 3, 2, 1, 0, 4},    {200818, PLAN_STREAM, 1, 1, 1, 1, 7},
        {266692, PLAN_PUT, 1, 0, 1, 1, 11},    {277911, PLAN_FETCH, 0, 0, 7, 2, 13},
        {279698, PLAN_PUT, 0, 0, 2, 3, 12},    {286802, PLAN_TAKE, 0, 1, 2, 2, 46},
        {321543, PLAN_AM, 3, 0, 12, 3, 51},    {328609, PLAN_STRIKE, 0, 1, 8, 15194, 132},
        {490301, PLAN_AM, 3, 1, 208, 0, 60},   {500492, PLAN_STRIKE, 3, 1, 18, 9159, 147},
        {500493, PLAN_PLACE, 3, 0, 4, 3, 148},
    };
    expect_good(&(struct plan){.seed = 3100055073,
                               .n_workers = 4,
                               .network = PLAN_RELIABLE,
                               .scarce = 3,
                               .exposes = 1,
                               .hurried = 20,
                               .depth = 128,
                               .chaos_ns = 541157,
                               .setting = {{"rendezvous.threshold", "1k"}},
                               .n_settings = 1,
                               ITEMS(items)});
}

/* The answer of an endpoint that its peer had closed had a place until the iteration ended. */
TEST(the_answers_of_a_closed_endpoint_take_no_place_from_another_endpoint) {
    static struct plan_item items[] = {
        {0, PLAN_DIAL, 6, 1, 0, 0, 7},          {0, PLAN_DIAL, 8, 1, 0, 0, 9},
        {0, PLAN_DELAY, 0, 0, 2, 55016, 145},   {9732627, PLAN_AM, 6, 0, 144, 2, 49},
        {14247067, PLAN_FETCH, 8, 1, 1, 1, 71}, {22761229, PLAN_ADD, 6, 1, 240, 1, 20},
        {25341713, PLAN_CLOSE, 8, 1, 1, 1, 40},
    };
    expect_good(
        &(struct plan){.seed = 2610220439,
                       .n_workers = 2,
                       .network = PLAN_RELIABLE,
                       .exposes = 1,
                       .survive = 1,
                       .depth = 128,
                       .chaos_ns = 33915374,
                       .setting = {{"rma.max_served", "128"}, {"failover.retain_bytes", "64k"}},
                       .n_settings = 2,
                       ITEMS(items)});
}
