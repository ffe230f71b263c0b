/* What a process's workers show their peers side by side, and what it maps of others: who has
 * which place, and how long. */
#include "pair.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <transports/shm/lane/shm.h>
#include <transports/shm/memory/process_globals.h>

TEST(a_place_is_had_again_when_no_peer_can_know_it) {
    struct slot_table_place first, second, third;
    CHECK_EQ(weft__slot_table_take(&first), WEFT_OK);
    CHECK_EQ(weft__slot_table_take(&second), WEFT_OK);
    CHECK(first.slot_table == second.slot_table && first.index != second.index);
    uint32_t index = second.index;
    second.doorbell->armed = 7;
    second.tx_slot->nodes[1].word = 9;
    weft__slot_table_give(&second, true);
    CHECK_EQ(weft__slot_table_take(&second), WEFT_OK);
    CHECK_EQ(second.index, index);
    CHECK_EQ(second.doorbell->armed, 0);
    CHECK_EQ(second.tx_slot->nodes[1].word, 0);
    weft__slot_table_give(&second, false);
    CHECK_EQ(weft__slot_table_take(&third), WEFT_OK);
    CHECK(third.slot_table == first.slot_table && third.index != index);
    weft__slot_table_give(&third, true);
    weft__slot_table_give(&first, true);
    CHECK(
        !weft__process_globals_enter()->slot_tables); /* and what was poisoned went with the last */
    weft__process_globals_leave();
}

TEST(a_full_slot_table_is_followed_by_another) {
    static struct slot_table_place places[SLOT_TABLE_PLACES + 1];
    for (int i = 0; i <= SLOT_TABLE_PLACES; i++)
        CHECK_EQ(weft__slot_table_take(&places[i]), WEFT_OK);
    CHECK(places[0].slot_table == places[SLOT_TABLE_PLACES - 1].slot_table &&
          places[0].slot_table != places[SLOT_TABLE_PLACES].slot_table);
    for (int i = 0; i <= SLOT_TABLE_PLACES; i++) weft__slot_table_give(&places[i], true);
    CHECK(!weft__process_globals_enter()->slot_tables);
    weft__process_globals_leave();
}

enum { THREADS = 4, ROUNDS = 300 };

/* Each finds its own word where it wrote it. */
static void *take_and_give(void *arg) {
    uintptr_t wrong = 0;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct slot_table_place place;
        struct mapped *mapped = NULL;
        if (weft__slot_table_take(&place) < 0) return (void *)(uintptr_t)1;
        place.doorbell->armed = i + 1 + ROUNDS * *(uint32_t *)arg;
        if (weft__mapped_get(place.slot_table->doorbells.fd, SLOT_TABLE_DOORBELLS_SIZE, true,
                             &mapped) < 0)
            return (void *)(uintptr_t)1;
        const struct doorbell *doorbells = mapped->segment.at;
        wrong += doorbells[place.index].armed != i + 1 + ROUNDS * *(uint32_t *)arg;
        weft__mapped_put(mapped);
        weft__slot_table_give(&place, i % 2);
    }
    return (void *)wrong;
}

TEST(threads_take_places_of_their_own) {
    pthread_t threads[THREADS];
    uint32_t numbers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK_EQ(pthread_create(&threads[i], NULL, take_and_give, &numbers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        CHECK(!wrong);
    }
    CHECK(!weft__process_globals_enter()->slot_tables);
    weft__process_globals_leave();
}

TEST(a_forks_child_has_a_slot_table_of_its_own) {
    struct slot_table_place ours, theirs;
    CHECK_EQ(weft__slot_table_take(&ours), WEFT_OK);
    ours.doorbell->armed = 5;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (weft__slot_table_take(&theirs) < 0 || theirs.slot_table == ours.slot_table) _exit(1);
        theirs.doorbell->armed = 6;
        weft__slot_table_give(&ours, true); /* its memory, and its parent's place stays */
        weft__slot_table_give(&theirs, true);
        _exit(weft__process_globals_enter()->slot_tables ? 2 : 0);
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK_EQ(ours.doorbell->armed, 5);
    CHECK_EQ(weft__slot_table_take(&theirs), WEFT_OK);
    CHECK(theirs.slot_table == ours.slot_table && theirs.index != ours.index);
    weft__slot_table_give(&theirs, true);
    weft__slot_table_give(&ours, true);
}

TEST(memory_is_mapped_once_and_let_go_with_the_last) {
    struct segment a, b;
    struct mapped *once, *again, *other, *writable;
    CHECK_EQ(weft__segment_create(&a, "test", 8192, SEGMENT_COMMON), WEFT_OK);
    CHECK_EQ(weft__segment_create(&b, "test", 8192, SEGMENT_COMMON), WEFT_OK);
    int copy = dup(a.fd);
    CHECK_EQ(weft__mapped_get(a.fd, 8192, false, &once), WEFT_OK);
    CHECK_EQ(weft__mapped_get(copy, 8192, false, &again), WEFT_OK);
    CHECK_EQ(weft__mapped_get(b.fd, 8192, false, &other), WEFT_OK);
    CHECK_EQ(weft__mapped_get(a.fd, 8192, true, &writable), WEFT_OK);
    CHECK(once == again && once != other && once != writable);
    CHECK_EQ(weft__mapped_get(a.fd, 4096, false, &again), WEFT_ERR_PROTOCOL);
    CHECK_EQ(once->n_users, 2);
    void *at = once->segment.at;
    weft__mapped_put(once);
    CHECK_EQ(msync(at, 8192, MS_ASYNC), 0);
    weft__mapped_put(once);
    CHECK_EQ(msync(at, 8192, MS_ASYNC), -1); /* ENOMEM: nothing is there */
    weft__mapped_put(other);
    weft__mapped_put(writable);
    close(copy);
    weft__segment_close(&a);
    weft__segment_close(&b);
}

/* Closing in good order leaves nothing with the peer; a peer that does not answer may wake up
 * whenever it likes. */
TEST(a_worker_that_ends_without_its_peers_answer_leaves_its_place_poisoned) {
    for (int answers = 0; answers < 2; answers++) {
        struct pair p;
        struct iface *next;
        pair_open_with(&p, &weft__transport_shm, 0,
                       (weft_setting_t[]){{"close.timeout", "50ms"}, {"shm.rings", "0"}}, 2);
        pair_connect(&p);
        uint32_t place = ((struct shm_iface *)p.iface_a)->slot.place.index;
        p.a.lane->ops->close(p.a.lane, true);
        double end = test_now() + test_timeout(60);
        while (test_now() < end &&
               !(p.a.n_closed && (!answers || ((struct shm_iface *)p.iface_a)->table.n == 0))) {
            weft__reactor_progress(p.reactor_a, 0);
            if (answers) weft__reactor_progress(p.reactor_b, 0);
            if (answers && p.b.n_down) pair_end_close(&p.b, false);
        }
        p.iface_a->ops->close(p.iface_a);
        weft__reactor_progress(p.reactor_a, 0);
        CHECK_EQ(pair_iface(&p, p.reactor_a, 0x77, &next), WEFT_OK);
        CHECK_EQ(((struct shm_iface *)next)->slot.place.index == place, answers);
        p.iface_a = next;
        pair_end_close(&p.b, false);
        pair_close(&p);
    }
}
