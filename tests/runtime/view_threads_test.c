/* Views of several threads, for which the program gives no worker. */
#include "view_processes.h"
#include <pthread.h>

static weft_view_t *left;
static pthread_t left_by;

static void *leave_a_view(void *arg) {
    left = view_of_one();
    left_by = pthread_self();
    return arg;
}

/* Threads of one id, one after the other. The second releases what the first has left, too. */
static void *share_apart(void *sees) {
    weft_view_t *a = view_of_one(), *b = view_of_one();
    bool *apart = sees;
    apart[0] = pthread_equal(left_by, pthread_self());
    apart[1] = weft_view_worker(a) != weft_view_worker(left);
    apart[2] = weft_view_worker(a) == weft_view_worker(b);
    apart[3] = weft_view_release_wait(a) == WEFT_OK && weft_view_release_wait(b) == WEFT_OK;
    if (apart[0]) apart[4] = weft_view_release_wait(left) == WEFT_OK;
    return sees;
}

TEST(a_thread_shares_no_worker_with_an_ended_thread_whose_id_it_has) {
    bool sees[5] = {false};
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, leave_a_view, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(pthread_create(&thread, NULL, share_apart, sees), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    if (!sees[0]) SKIP("the system gave the second thread another id");
    for (int i = 1; i < 5; i++) CHECK(sees[i]);
}

static void *share_beside(void *other) {
    weft_view_t *a = view_of_one(), *b = view_of_one();
    bool good = weft_view_worker(a) == weft_view_worker(b) && weft_view_worker(a) != other;
    good &= weft_view_release_wait(a) == WEFT_OK && weft_view_release_wait(b) == WEFT_OK;
    return good ? other : NULL;
}

TEST(the_views_of_each_thread_share_a_worker_of_it) {
    weft_view_t *view = view_of_one();
    pthread_t thread;
    void *good = NULL;
    CHECK_EQ(pthread_create(&thread, NULL, share_beside, weft_view_worker(view)), 0);
    CHECK_EQ(pthread_join(thread, &good), 0);
    CHECK(good);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}
