/* A copy that is made from both ends: what each side takes, and who waits for whom. */
#include <pthread.h>
#include <sched.h>
#include <tests/harness.h>
#include <transports/shm/queues/copy_ctl.h>

static struct split_words words;

TEST(pieces_are_all_of_it_and_none_is_empty) {
    static const size_t near[] = {1,      2,      4095,   4096,   4097,   65536,
                                  131071, 131072, 131073, 262144, 262145, 1 << 20};
    struct split split;
    for (unsigned i = 0; i < sizeof near / sizeof *near; i++)
        for (size_t len = near[i]; len < near[i] + 3 * SPLIT_PAGE; len += 509) {
            size_t sum = 0, piece;
            CHECK(split_init(&split, &words, 1, len));
            for (unsigned n = 0; n < split.n; n++) {
                CHECK_EQ(split_at(&split, (int)n, &piece), sum);
                CHECK(piece > 0 && piece <= SPLIT_PIECE);
                sum += piece;
            }
            CHECK_EQ(sum, len);
        }
    CHECK(split_init(&split, &words, 1, (size_t)SPLIT_PIECES_MAX * SPLIT_PIECE));
    CHECK(!split_init(&split, &words, 1, (size_t)SPLIT_PIECES_MAX * SPLIT_PIECE * 2));
}

static void both(struct split *reader, struct split *helper, unsigned n) {
    CHECK(split_init(reader, &words, 7, (size_t)n * SPLIT_PIECE));
    *helper = *reader;
    CHECK_EQ(reader->n, n);
    split_begin(reader);
}

TEST(they_meet_and_take_no_piece_twice) {
    struct split reader, helper;
    for (unsigned way = 0; way < 1 << 6; way++) {
        unsigned taken = 0;
        both(&reader, &helper, 6);
        for (unsigned i = 0; i < 6; i++) {
            bool put_reqs = way >> i & 1;
            int piece = put_reqs ? split_from_back(&helper) : split_from_front(&reader);
            CHECK(piece >= 0 && piece < 6 && !(taken >> piece & 1));
            taken |= 1u << piece;
            if (put_reqs) CHECK(!split_wrote(&helper));
        }
        CHECK_EQ(taken, 63);
        CHECK_EQ(split_from_front(&reader), -1);
        CHECK_EQ(split_from_back(&helper), SPLIT_OVER);
        CHECK(split_stop(&reader));
        split_end(&reader);
    }
}

TEST(the_reader_waits_for_a_piece_that_is_not_there_yet_and_the_helper_learns_of_it) {
    struct split reader, helper;
    both(&reader, &helper, 4);
    CHECK_EQ(split_from_back(&helper), 3);
    CHECK(!split_wrote(&helper));
    CHECK_EQ(split_from_front(&reader), 0);
    CHECK_EQ(split_from_front(&reader), 1);
    CHECK_EQ(split_from_back(&helper), 2);
    CHECK_EQ(split_from_front(&reader), -1);
    CHECK(!split_stop(&reader) && !split_came(&reader));
    CHECK(split_wrote(&helper));
    CHECK(split_came(&reader));
    split_end(&reader);
}

TEST(what_is_left_to_the_helper_is_reported_with_its_last_piece_or_where_it_was_stopped) {
    struct split reader, helper;
    for (unsigned stop = 0; stop <= 4; stop++) {
        both(&reader, &helper, 4);
        split_leave(&reader);
        for (unsigned i = 0; i < stop; i++) {
            CHECK_EQ(split_from_back(&helper), (int)(3 - i));
            CHECK(!split_came(&reader));
            if (i + 1 < stop) CHECK(!split_wrote(&helper));
        }
        CHECK_EQ(split_stop(&reader), stop == 0);
        CHECK_EQ(reader.awaited, stop);
        CHECK_EQ(split_from_back(&helper), SPLIT_OVER);
        if (stop) CHECK(!split_came(&reader) && split_wrote(&helper));
        CHECK(split_came(&reader));
        split_end(&reader);
    }
}

TEST(who_comes_late_finds_nothing) {
    struct split reader, helper, late;
    both(&reader, &helper, 4);
    late = helper;
    CHECK_EQ(split_from_back(&late), 3);
    split_end(&reader);
    CHECK_EQ(split_from_back(&helper), SPLIT_OVER);
    CHECK(!split_wrote(&late));
    CHECK_EQ(atomic_load(&words.written), 0);
    CHECK(split_init(&reader, &words, 8, 4 * SPLIT_PIECE)); /* the words are another copy's */
    split_begin(&reader);
    CHECK_EQ(split_from_back(&helper), SPLIT_OVER);
    CHECK(!split_wrote(&late));
    CHECK_EQ(atomic_load(&words.written) & (SPLIT_AWAITED - 1), 0);
}

TEST(a_helper_takes_no_more_than_there_is_whatever_it_reads) {
    struct split reader, helper;
    both(&reader, &helper, 6);
    unsigned taken = 0;
    for (int i = 0; i < 20; i++) {
        taken += split_from_back(&helper) >= 0;
        atomic_store(&words.taken, (uint64_t)7 << 32); /* a peer says that nothing is taken */
    }
    CHECK_EQ(taken, 6);
    atomic_store(&words.taken, (uint64_t)7 << 32 | (uint64_t)UINT16_MAX << 16 | UINT16_MAX);
    helper.taken = 0;
    CHECK_EQ(split_from_back(&helper), SPLIT_OVER);
}

/* ---- two threads ----------------------------------------------------------------------------- */

enum { ROUNDS = 4000, PIECES = 10 };

struct game {
    _Atomic uint32_t round;    /* that the helper may take part in; 0: the end */
    _Atomic unsigned notified; /* how often the helper learned that it is waited for */
    /* by whom each was copied: plain memory, which the words must order */
    char pieces[PIECES];
};

static struct split split_of_round(uint32_t round) {
    struct split split;
    (void)split_init(&split, &words, round, (size_t)PIECES * SPLIT_PIECE);
    return split;
}

static void *put_req(void *arg) {
    struct game *g = arg;
    uint32_t round;
    while ((round = atomic_load(&g->round)) != UINT32_MAX) {
        struct split split = split_of_round(round ? round : 1);
        int piece;
        while ((piece = split_from_back(&split)) != SPLIT_OVER) {
            if (piece < 0) continue;
            g->pieces[piece]++;
            if (split_wrote(&split)) atomic_fetch_add(&g->notified, 1);
        }
    }
    return NULL;
}

TEST(between_two_threads_each_piece_is_copied_once_and_there_when_it_is_sent) {
    static struct game g;
    pthread_t thread;
    unsigned waited = 0;
    CHECK_EQ(pthread_create(&thread, NULL, put_req, &g), 0);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        struct split split = split_of_round(round);
        int piece;
        memset(g.pieces, 0, sizeof g.pieces);
        split_begin(&split);
        atomic_store(&g.round, round);
        while ((piece = split_from_front(&split)) >= 0) {
            g.pieces[piece]++;
            if (round % 3 == 0) sched_yield();
        }
        if (!split_stop(&split)) {
            waited++;
            while (!split_came(&split)) sched_yield();
        }
        for (int i = 0; i < PIECES; i++)
            if (g.pieces[i] != 1)
                printf("  round %u, piece %d: %d\n", round, i, g.pieces[i]), abort();
        split_end(&split);
    }
    atomic_store(&g.round, UINT32_MAX);
    pthread_join(thread, NULL);
    CHECK_EQ(g.notified, waited);
    printf("  waited in %u of %d rounds\n", waited, ROUNDS);
}
