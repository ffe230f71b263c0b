/* Copies of device memory in the background: their start, their end on the worker, and staging
 * buffers. */
#include "copies.h"

#include "stream_gate.h"

#include <base/alloc.h>
#include <base/clock.h>
#include <base/status.h>
#include <pthread.h>
#include <sys/mman.h>

enum { LOOK_AGAIN_MS = 20 };

struct cuda_copies {
    struct reactor *reactor;
    size_t chunk, left; /* bytes that may still become staging buffers */
    struct list free, all_under_way;
    struct timer look;
};

/* What the driver's thread has of a copy. It outlives a copy that has failed. */
struct cuda_ticket {
    struct remote remote;
    struct list of_left;    /* in `left`, or in no list */
    struct cuda_copies *of; /* NULL: the copy has failed, or its worker is gone */
    struct cuda_copy *copy;
    bool is_reported; /* it is on its way to the worker */
};
/* Of `of` and `is_reported`, which the driver's thread uses, and of `left`: tickets that only the
 * driver has. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct list left = {&left, &left};

/* ---- the end of a copy */

static void end_copy(struct cuda_copy *copy, weft_status_t status) {
    struct cuda_copies *copies = copy->of;
    list_remove(&copy->under_way);
    if (list_empty(&copies->all_under_way)) weft__timer_stop(copies->reactor, &copies->look);
    weft__cuda_batch_end(&copy->batch, status);
    copy->done(copy, status);
}

static void run_ticket(struct remote *remote) {
    struct cuda_ticket *ticket = container_of(remote, struct cuda_ticket, remote);
    struct cuda_copy *copy = ticket->copy;
    pthread_mutex_lock(&mutex);
    list_remove(&ticket->of_left);
    pthread_mutex_unlock(&mutex);
    talloc_free(ticket);
    if (copy) end_copy(copy, WEFT_OK);
}

static void driver_reports(void *arg) {
    struct cuda_ticket *ticket = arg;
    pthread_mutex_lock(&mutex);
    if (ticket->of) {
        ticket->is_reported = true;
        weft__reactor_submit(ticket->of->reactor, &ticket->remote);
    } else {
        list_remove(&ticket->of_left);
        talloc_free(ticket);
    }
    pthread_mutex_unlock(&mutex);
}

/* Where the driver never reports it, the ticket's few bytes stay. */
static void leave_ticket(struct cuda_copy *copy) {
    pthread_mutex_lock(&mutex);
    copy->ticket->of = NULL;
    copy->ticket->copy = NULL;
    list_append(&left, &copy->ticket->of_left);
    pthread_mutex_unlock(&mutex);
    copy->ticket = NULL; /* the driver's, which may have freed it by now */
}

static bool is_reported(const struct cuda_copy *copy) {
    pthread_mutex_lock(&mutex);
    bool is = copy->ticket->is_reported;
    pthread_mutex_unlock(&mutex);
    return is;
}

/* A stream that has nothing left to do, and has not reported the copy, never will: its context
 * broke, and another one has its address, and the stream's. */
static weft_status_t copy_check(const struct cuda_copy *copy) {
    weft_status_t st = weft__cuda_batch_check(&copy->batch);
    if (st == WEFT_IN_PROGRESS || is_reported(copy)) return WEFT_OK;
    return st < 0 ? st : weft__fail(WEFT_ERR_IO, "the context of a copy is another one by now");
}

/* `done` of one may begin others, and end some. */
static struct cuda_copy *next_failed(struct cuda_copies *copies, weft_status_t *status_p) {
    list_for_each(node, &copies->all_under_way) {
        struct cuda_copy *copy = list_of(node, struct cuda_copy, under_way);
        *status_p = copy_check(copy);
        if (*status_p < 0) return copy;
    }
    return NULL;
}

/* All copies of that stream that were not reported have failed with it. */
static void fail_with(struct cuda_copies *copies, struct cuda_copy *first, weft_status_t status) {
    struct cuda_batch with = first->batch;
    struct list failed;
    list_init(&failed);
    list_for_each_safe(node, after, &copies->all_under_way) {
        struct cuda_copy *copy = list_of(node, struct cuda_copy, under_way);
        if (!cuda_batch_shares_stream(&copy->batch, &with) || is_reported(copy)) continue;
        leave_ticket(copy);
        weft__cuda_batch_end(&copy->batch, status);
        list_remove(node);
        list_append(&failed, node);
    }
    for (struct list *node; (node = list_pop(&failed)) != NULL;) {
        struct cuda_copy *copy = list_of(node, struct cuda_copy, under_way);
        copy->done(copy, status);
    }
}

static void look_at_contexts(struct timer *timer) {
    struct cuda_copies *copies = container_of(timer, struct cuda_copies, look);
    struct cuda_copy *failed;
    weft_status_t st;
    while ((failed = next_failed(copies, &st)) != NULL) fail_with(copies, failed, st);
    if (!list_empty(&copies->all_under_way)) /* a place is reserved */
        (void)weft__timer_start(copies->reactor, timer,
                                weft__now(copies->reactor) + LOOK_AGAIN_MS * NS_PER_MS);
}

/* ---- beginning one */

weft_status_t weft__cuda_copy_start(struct cuda_copies *copies, struct cuda_batch *batch,
                                    struct cuda_copy *copy) {
    struct cuda_ticket *ticket = weft__new(NULL, struct cuda_ticket);
    if (!ticket) { /* the copies are made, and waited for */
        weft_status_t st = weft__cuda_batch_wait(batch);
        return st < 0 ? st : WEFT_ERR_NO_MEMORY;
    }
    *ticket = (struct cuda_ticket){.remote.run = run_ticket, .of = copies, .copy = copy};
    list_init(&ticket->of_left);
    copy->of = copies;
    copy->ticket = ticket;
    copy->batch = *batch;
    if (list_empty(&copies->all_under_way))
        (void)weft__timer_start(copies->reactor, &copies->look,
                                weft__now(copies->reactor) + LOOK_AGAIN_MS * NS_PER_MS);
    list_append(&copies->all_under_way, &copy->under_way);
    weft_status_t st = weft__cuda_batch_then(batch, driver_reports, ticket);
    if (st == WEFT_OK) return WEFT_OK;
    list_remove(&copy->under_way);
    if (list_empty(&copies->all_under_way)) weft__timer_stop(copies->reactor, &copies->look);
    talloc_free(ticket);
    return st;
}

void weft__cuda_copy_stop(struct cuda_copy *copy) {
    list_remove(&copy->under_way);
    if (!copy->ticket) return; /* it fails with others, and `done` of one of them stops it */
    leave_ticket(copy);
    weft__cuda_batch_stop(&copy->batch);
}

/* ---- staging buffers */

/* Memory that the driver would allocate goes with its context; this stays, and is as fast. */
static struct cuda_chunk *new_chunk(struct cuda_copies *copies, cuda_context context) {
    struct cuda_chunk *chunk = weft__new(copies, struct cuda_chunk);
    if (!chunk) return NULL;
    chunk->at =
        mmap(NULL, copies->chunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (chunk->at == MAP_FAILED) {
        talloc_free(chunk);
        return NULL;
    }
    chunk->len = copies->chunk;
    chunk->context = context ? context : weft__cuda_current();
    chunk->is_pinned = weft__cuda_pin(chunk->context, chunk->at, copies->chunk) == WEFT_OK;
    list_init(&chunk->of_pool);
    copies->left -= copies->chunk;
    return chunk;
}

struct cuda_chunk *weft__cuda_chunk_take(struct cuda_copies *copies, cuda_context context) {
    struct list *node = list_pop(&copies->free);
    if (node) return list_of(node, struct cuda_chunk, of_pool);
    return copies->left < copies->chunk ? NULL : new_chunk(copies, context);
}

void weft__cuda_chunk_give(struct cuda_copies *copies, struct cuda_chunk *chunk) {
    list_prepend(&copies->free, &chunk->of_pool);
}

static void free_chunk(struct cuda_chunk *chunk) {
    if (!chunk->is_pinned || weft__cuda_unpin(chunk->context, chunk->at))
        munmap(chunk->at, chunk->len);
    talloc_free(chunk);
}

/* To unpin memory, the driver may wait for streams, of which one may wait for an operation of
 * another worker of this thread. These are freed with a later worker's. */
static struct list kept = {&kept, &kept};

static void keep_chunks(struct cuda_copies *copies) {
    pthread_mutex_lock(&mutex);
    for (struct list *node; (node = list_pop(&copies->free)) != NULL;) {
        (void)talloc_steal(NULL, list_of(node, struct cuda_chunk, of_pool));
        list_append(&kept, node);
    }
    pthread_mutex_unlock(&mutex);
}

static struct cuda_chunk *next_kept(void) {
    pthread_mutex_lock(&mutex);
    struct list *node = list_pop(&kept);
    pthread_mutex_unlock(&mutex);
    return node ? list_of(node, struct cuda_chunk, of_pool) : NULL;
}

static void free_chunks(struct cuda_copies *copies) {
    keep_chunks(copies);
    if (!weft__cuda_gates_rest()) return;
    for (struct cuda_chunk *chunk; (chunk = next_kept()) != NULL;) free_chunk(chunk);
    weft__cuda_gates_go_on();
}

size_t weft__cuda_chunk_size(const struct cuda_copies *copies) {
    return copies->chunk;
}

/* ---- of a worker */

weft_status_t weft__cuda_copies_open(struct reactor *r, size_t chunk, size_t most,
                                     struct cuda_copies **copies_p) {
    struct cuda_copies *copies = weft__new(r, struct cuda_copies);
    if (!copies) return WEFT_ERR_NO_MEMORY;
    copies->reactor = r;
    copies->chunk = chunk;
    copies->left = most;
    copies->look.fire = look_at_contexts;
    list_init(&copies->free);
    list_init(&copies->all_under_way);
    weft_status_t st = weft__timer_reserve(r, &copies->look);
    if (st < 0)
        talloc_free(copies);
    else
        *copies_p = copies;
    return st;
}

void weft__cuda_copies_close(struct cuda_copies *copies) {
    if (!copies) return;
    while (!list_empty(&copies->all_under_way))
        weft__cuda_copy_stop(list_of(copies->all_under_way.next, struct cuda_copy, under_way));
    weft__timer_release(copies->reactor, &copies->look);
    free_chunks(copies);
    talloc_free(copies);
}
