/*
 * A worker with a thread of its own, and operations from other threads. Four threads submit
 * messages on one endpoint, without a lock, while no loop of the program runs. Callbacks come on
 * the worker's thread.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

enum { ADD = 1, THREADS = 4, NUMBERS = 10000 };
static weft_ep_t *ep;
static uint64_t sum, received;         /* of the server's thread, until it has stopped */
static atomic_int failed, outstanding; /* operations that have not ended */
static sem_t all_received;

static int must(weft_status_t status, const char *what) {
    char text[512];
    if (status >= 0) return 1;
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    atomic_store(&failed, 1);
    return 0;
}

/* ---- on the workers' threads ----------------------------------------------------------------- */

static void on_add(weft_ep_t *from, weft_am_t *am, void *arg) {
    uint64_t number;
    if (am->header_len != sizeof number) return;
    memcpy(&number, am->header, sizeof number);
    sum += number;
    if (++received == THREADS * NUMBERS) sem_post(&all_received);
}
static void on_sent(weft_status_t status, void *arg) {
    must(status, "send");
    atomic_fetch_sub(&outstanding, 1);
}
static void on_lost(weft_ep_t *lost, weft_status_t status, void *arg) {
    if (!must(status, "connection")) sem_post(&all_received); /* nothing more will come */
}

/* ---- on threads of the program --------------------------------------------------------------- */

/* A submission never blocks. It returns IN_PROGRESS or an error, and on_sent is called once. */
static void *submit_numbers(void *arg) {
    uint64_t first = *(unsigned *)arg * NUMBERS;
    for (uint64_t number = first; number < first + NUMBERS; number++) {
        atomic_fetch_add(&outstanding, 1);
        weft_status_t st =
            weft_am_send(ep, ADD, &number, sizeof number, NULL, 0, &(weft_op_t){.done = on_sent});
        if (st != WEFT_IN_PROGRESS) on_sent(st, NULL);
    }
    return NULL;
}

static weft_worker_t *new_worker(weft_context_t *context) {
    weft_worker_params_t params = {.thread_mode = WEFT_THREAD_MULTIPLE};
    weft_worker_t *worker = NULL;
    must(weft_worker_create(context, &params, &worker), "worker");
    return worker;
}

int main(void) {
    weft_context_t *context;
    weft_listener_t *listener;
    pthread_t thread[THREADS];
    unsigned number[THREADS];
    sem_init(&all_received, 0, 0);
    if (!must(weft_context_create(NULL, &context), "context")) return 1;
    weft_worker_t *server = new_worker(context), *client = new_worker(context);
    if (!server || !client) return 1;

    /* What only the owner may call comes before the worker has its thread. */
    must(weft_am_handler_set(server, ADD, on_add, NULL), "handler");
    if (!must(weft_listen(server, "tcp://127.0.0.1:0", NULL, &listener), "listen")) return 1;
    const char *uri = weft_listener_uri(listener);
    weft_ep_params_t params = {.on_error = on_lost};
    if (!must(weft_connect(client, uri, &params, &ep), uri)) return 1;
    if (!must(weft_worker_start_thread(server, NULL), "thread")) return 1;
    if (!must(weft_worker_start_thread(client, NULL), "thread")) return 1;

    for (unsigned i = 0; i < THREADS; i++) {
        number[i] = i;
        if (pthread_create(&thread[i], NULL, submit_numbers, &number[i])) return 1;
    }
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    sem_wait(&all_received);
    weft_worker_destroy(client); /* stops its thread first */
    weft_worker_destroy(server);
    must(weft_context_destroy(context), "context");
    uint64_t wanted = (uint64_t)THREADS * NUMBERS * (THREADS * NUMBERS - 1) / 2;
    printf("%d numbers of %d threads: their sum is %s, %d operations have not ended\n",
           THREADS * NUMBERS, THREADS, sum == wanted ? "right" : "wrong",
           atomic_load(&outstanding));
    return atomic_load(&failed) || sum != wanted || atomic_load(&outstanding);
}
