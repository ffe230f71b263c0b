/* A copy that is made from both ends: what each side takes, and who waits for whom. */
#include "../harness.h"
#include <pthread.h>
#include <sched.h>
#include <transports/shm/joint.h>

static struct joint_words words;

TEST(pieces_are_all_of_it_and_none_is_empty) {
    static const size_t near[] = {1, 2, 4095, 4096, 4097, 65536, 131071, 131072, 131073, 262144, 262145, 1 << 20};
    struct joint joint;
    for (unsigned i = 0; i < sizeof near / sizeof *near; i++)
        for (size_t len = near[i]; len < near[i] + 3 * JOINT_PAGE; len += 509) {
            size_t sum = 0, piece;
            CHECK(joint_init(&joint, &words, 1, len));
            for (unsigned n = 0; n < joint.n; n++) {
                CHECK_EQ(joint_at(&joint, (int)n, &piece), sum);
                CHECK(piece > 0 && piece <= JOINT_PIECE);
                sum += piece;
            }
            CHECK_EQ(sum, len);
        }
    CHECK(joint_init(&joint, &words, 1, (size_t)JOINT_PIECES_MAX * JOINT_PIECE));
    CHECK(!joint_init(&joint, &words, 1, (size_t)JOINT_PIECES_MAX * JOINT_PIECE * 2));
}

static void both(struct joint *reader, struct joint *helper, unsigned n) {
    CHECK(joint_init(reader, &words, 7, (size_t)n * JOINT_PIECE));
    *helper = *reader;
    CHECK_EQ(reader->n, n);
    joint_begin(reader);
}

TEST(they_meet_and_take_no_piece_twice) {
    struct joint reader, helper;
    for (unsigned way = 0; way < 1 << 6; way++) {
        unsigned taken = 0;
        both(&reader, &helper, 6);
        for (unsigned i = 0; i < 6; i++) {
            bool helps = way >> i & 1;
            int piece = helps ? joint_from_back(&helper) : joint_from_front(&reader);
            CHECK(piece >= 0 && piece < 6 && !(taken >> piece & 1));
            taken |= 1u << piece;
            if (helps) CHECK(!joint_wrote(&helper));
        }
        CHECK_EQ(taken, 63);
        CHECK_EQ(joint_from_front(&reader), -1);
        CHECK_EQ(joint_from_back(&helper), JOINT_OVER);
        CHECK(joint_stop(&reader));
        joint_end(&reader);
    }
}

TEST(the_reader_waits_for_a_piece_that_is_not_there_yet_and_the_helper_hears_of_it) {
    struct joint reader, helper;
    both(&reader, &helper, 4);
    CHECK_EQ(joint_from_back(&helper), 3);
    CHECK(!joint_wrote(&helper));
    CHECK_EQ(joint_from_front(&reader), 0);
    CHECK_EQ(joint_from_front(&reader), 1);
    CHECK_EQ(joint_from_back(&helper), 2);
    CHECK_EQ(joint_from_front(&reader), -1);
    CHECK(!joint_stop(&reader) && !joint_came(&reader));
    CHECK(joint_wrote(&helper));
    CHECK(joint_came(&reader));
    joint_end(&reader);
}

TEST(what_is_left_to_the_helper_is_told_with_its_last_piece_or_where_it_was_stopped) {
    struct joint reader, helper;
    for (unsigned stop = 0; stop <= 4; stop++) {
        both(&reader, &helper, 4);
        joint_leave(&reader);
        for (unsigned i = 0; i < stop; i++) {
            CHECK_EQ(joint_from_back(&helper), (int)(3 - i));
            CHECK(!joint_came(&reader));
            if (i + 1 < stop) CHECK(!joint_wrote(&helper));
        }
        CHECK_EQ(joint_stop(&reader), stop == 0);
        CHECK_EQ(reader.awaited, stop);
        CHECK_EQ(joint_from_back(&helper), JOINT_OVER);
        if (stop) CHECK(!joint_came(&reader) && joint_wrote(&helper));
        CHECK(joint_came(&reader));
        joint_end(&reader);
    }
}

TEST(who_comes_late_finds_nothing) {
    struct joint reader, helper, late;
    both(&reader, &helper, 4);
    late = helper;
    CHECK_EQ(joint_from_back(&late), 3);
    joint_end(&reader);
    CHECK_EQ(joint_from_back(&helper), JOINT_OVER);
    CHECK(!joint_wrote(&late));
    CHECK_EQ(atomic_load(&words.written), 0);
    CHECK(joint_init(&reader, &words, 8, 4 * JOINT_PIECE)); /* the words are another copy's */
    joint_begin(&reader);
    CHECK_EQ(joint_from_back(&helper), JOINT_OVER);
    CHECK(!joint_wrote(&late));
    CHECK_EQ(atomic_load(&words.written) & (JOINT_AWAITED - 1), 0);
}

TEST(a_helper_takes_no_more_than_there_is_whatever_it_reads) {
    struct joint reader, helper;
    both(&reader, &helper, 6);
    unsigned taken = 0;
    for (int i = 0; i < 20; i++) {
        taken += joint_from_back(&helper) >= 0;
        atomic_store(&words.taken, (uint64_t)7 << 32); /* somebody says that nothing is taken */
    }
    CHECK_EQ(taken, 6);
    atomic_store(&words.taken, (uint64_t)7 << 32 | (uint64_t)UINT16_MAX << 16 | UINT16_MAX);
    helper.taken = 0;
    CHECK_EQ(joint_from_back(&helper), JOINT_OVER);
}

/* ---- two threads --------------------------------------------------------------------------------------------------------- */

enum { ROUNDS = 4000, PIECES = 10 };

struct game {
    _Atomic uint32_t round; /* that the helper may take part in; 0: the end */
    _Atomic unsigned told;  /* how often the helper heard that it is waited for */
    char pieces[PIECES];    /* by whom each was copied: plain memory, which the words must order */
};

static struct joint joint_of_round(uint32_t round) {
    struct joint joint;
    (void)joint_init(&joint, &words, round, (size_t)PIECES * JOINT_PIECE);
    return joint;
}

static void *help(void *arg) {
    struct game *g = arg;
    uint32_t round;
    while ((round = atomic_load(&g->round)) != UINT32_MAX) {
        struct joint joint = joint_of_round(round ? round : 1);
        int piece;
        while ((piece = joint_from_back(&joint)) != JOINT_OVER) {
            if (piece < 0) continue;
            g->pieces[piece]++;
            if (joint_wrote(&joint)) atomic_fetch_add(&g->told, 1);
        }
    }
    return NULL;
}

TEST(between_two_threads_each_piece_is_copied_once_and_there_when_it_is_said) {
    static struct game g;
    pthread_t thread;
    unsigned waited = 0;
    CHECK_EQ(pthread_create(&thread, NULL, help, &g), 0);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        struct joint joint = joint_of_round(round);
        int piece;
        memset(g.pieces, 0, sizeof g.pieces);
        joint_begin(&joint);
        atomic_store(&g.round, round);
        while ((piece = joint_from_front(&joint)) >= 0) {
            g.pieces[piece]++;
            if (round % 3 == 0) sched_yield();
        }
        if (!joint_stop(&joint)) {
            waited++;
            while (!joint_came(&joint)) sched_yield();
        }
        for (int i = 0; i < PIECES; i++)
            if (g.pieces[i] != 1) printf("  round %u, piece %d: %d\n", round, i, g.pieces[i]), abort();
        joint_end(&joint);
    }
    atomic_store(&g.round, UINT32_MAX);
    pthread_join(thread, NULL);
    CHECK_EQ(g.told, waited);
    printf("  waited in %u of %d rounds\n", waited, ROUNDS);
}
