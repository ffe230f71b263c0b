/* Gates in CUDA streams: the words that streams wait for, and the life of a gate. */
#include "stream_gate.h"

#include "kernels.h"

#include <base/alloc.h>
#include <base/list.h>
#include <base/status.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>

/* ---- words that streams wait for */

enum {
    WORDS = 64, /* registered together, for one context */
    LINE = 64,  /* one word a cache line */
    MOST_WORDS = 64,
    AT_LEAST = 0 /* of cuStreamWaitValue32: until the word has the value, or is beyond it */
};

/* The host's memory is registered, not the driver's: it stays when its context is destroyed. A word
 * only grows, so a stream that is late at an earlier gate of the word passes it. */
static struct words {
    cuda_context context;
    unsigned long long number; /* the context's: a later one may have its address */
    char *at;
    cuda_pointer device;
    uint64_t taken;
    uint32_t value[WORDS];
} words[MOST_WORDS];
static unsigned n_words;

struct cuda_gate {
    struct list of_all;
    const void *owner;
    void (*reached)(void *arg);
    void *arg;
    cuda_context context;
    unsigned long long number; /* the context's */
    cuda_stream stream;
    char *at;
    cuda_pointer device;
    uint32_t value;
    bool is_reached, is_open;
    bool is_passed;   /* the driver will not name it again */
    bool is_placed;   /* nor will the call that places it */
    bool is_recorded; /* in a graph: `owner` NULL: launches pass it */
};

/* Of all below. The driver's thread takes it in `reached`. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct list gates = {&gates, &gates};

/* Held for reading while a gate is placed or recorded; for writing while gates rest. */
static pthread_rwlock_t placing = PTHREAD_RWLOCK_INITIALIZER;

/* One of its words is free; or (any) there is one of this context at all. */
static struct words *find_words(cuda_context context, bool any) {
    for (unsigned i = 0; i < n_words; i++)
        if (words[i].context == context && (any || words[i].taken != UINT64_MAX)) return &words[i];
    return NULL;
}

/* The registration of an earlier context at this one's address may have gone with it. The memory
 * stays: see drop_words. */
static void forget_words(const struct cuda_gate *gate) {
    for (unsigned i = n_words; i-- > 0;)
        if (words[i].context == gate->context && words[i].number != gate->number)
            words[i] = words[--n_words];
}

static void unmake_words(const struct cuda_driver *driver, const struct words *made) {
    if (driver->host_unregister) (void)driver->host_unregister(made->at);
    munmap(made->at, WORDS * LINE);
}

/* The context is current. No lock is held here: the driver may wait for its thread, which takes the
 * lock in `reached`. The kernels are loaded before the first gate of a context: to load them, the
 * driver may wait for all work of the context, and so for a gate that they are to open. */
static weft_status_t make_words(const struct cuda_driver *driver, const struct cuda_gate *gate,
                                struct words *made_p) {
    struct words made = {.context = gate->context, .number = gate->number};
    (void)weft__cuda_queue_open(gate->context); /* without them, all is copied */
    made.at = mmap(NULL, WORDS * LINE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made.at == MAP_FAILED) return weft__fail(WEFT_ERR_NO_MEMORY, "words of streams");
    weft_status_t st =
        weft__cuda_status(driver->host_register(made.at, WORDS * LINE, CUDA_PORTABLE | CUDA_MAPPED),
                          "could not register words of streams");
    if (st == WEFT_OK)
        st = weft__cuda_status(driver->host_device_pointer(&made.device, made.at, 0),
                               "words of streams are not mapped");
    if (st < 0)
        unmake_words(driver, &made);
    else
        *made_p = made;
    return st;
}

/* A wait was refused: another context may have the address by now. The memory stays: a stream may
 * still read it. A device that never waits is no reason. */
static void drop_words(cuda_context context, cuda_result why) {
    if (why == CUDA_NOT_SUPPORTED) return;
    for (struct words *w; (w = find_words(context, true)) != NULL;) *w = words[--n_words];
}

static bool take_word(struct cuda_gate *gate) {
    struct words *w = find_words(gate->context, false);
    if (!w) return false;
    unsigned n = (unsigned)__builtin_ctzll(~w->taken);
    w->taken |= UINT64_C(1) << n;
    gate->at = w->at + n * LINE;
    gate->device = w->device + n * LINE;
    gate->value = ++w->value[n];
    list_append(&gates, &gate->of_all);
    return true;
}

static void give_word(const struct cuda_gate *gate) {
    for (unsigned i = 0; i < n_words; i++) {
        struct words *w = &words[i];
        if (gate->at >= w->at && gate->at < w->at + WORDS * LINE)
            w->taken &= ~(UINT64_C(1) << (unsigned)((gate->at - w->at) / LINE));
    }
}

/* ---- a gate's life */

static weft_status_t check_stream(const struct cuda_driver *driver, cuda_stream stream,
                                  bool recorded) {
    cuda_capture capture = 0;
    if (!driver || !driver->host_call || !driver->stream_wait_value || !driver->host_register)
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          driver ? "op->stream: the CUDA driver has no stream memory operations"
                                 : "op->stream: the CUDA driver is not loaded");
    weft_status_t st = weft__cuda_status(driver->stream_is_capturing(stream, &capture),
                                         "op->stream: not a stream");
    if (st == WEFT_OK && capture && !recorded)
        st =
            weft__fail(WEFT_ERR_UNSUPPORTED,
                       "op->stream is being captured: only weft_coll_start is recorded in a graph");
    return st;
}

/* Its context is current. */
static weft_status_t begin_gate(const struct cuda_driver *driver, struct cuda_gate *gate) {
    struct words made;
    weft_status_t st = WEFT_OK;
    gate->number = weft__cuda_context_number(gate->context);
    pthread_mutex_lock(&mutex);
    forget_words(gate);
    bool taken = take_word(gate), full = n_words == MOST_WORDS;
    pthread_mutex_unlock(&mutex);
    if (taken) return WEFT_OK;
    if (!full) st = make_words(driver, gate, &made);
    if (st < 0) return st;
    pthread_mutex_lock(&mutex);
    bool keeps = !full && n_words < MOST_WORDS;
    if (keeps) words[n_words++] = made;
    taken = take_word(gate);
    pthread_mutex_unlock(&mutex);
    if (!full && !keeps) unmake_words(driver, &made); /* another thread's came first */
    if (taken) return WEFT_OK;
    return weft__fail(WEFT_ERR_QUOTA, "more than %d operations of streams are under way",
                      MOST_WORDS * WORDS);
}

static weft_status_t enter_context(const struct cuda_driver *driver, struct cuda_gate *gate,
                                   struct cuda_visit *visit_p) {
    weft_status_t st = weft__cuda_status(driver->stream_context(gate->stream, &gate->context),
                                         "op->stream has no context");
    return st < 0 ? st
                  : weft__cuda_status(weft__cuda_enter(gate->context, visit_p),
                                      "could not enter the stream's context");
}

static weft_status_t new_gate(const struct cuda_gate *of, struct cuda_gate **gate_p) {
    weft__cuda_notice();
    const struct cuda_driver *driver = weft__cuda_driver();
    struct cuda_visit visit;
    weft_status_t st = check_stream(driver, of->stream, of->is_recorded);
    if (st < 0) return st;
    struct cuda_gate *gate = weft__new(NULL, struct cuda_gate);
    if (!gate) return WEFT_ERR_NO_MEMORY;
    *gate = *of;
    list_init(&gate->of_all);
    st = enter_context(driver, gate, &visit);
    if (st == WEFT_OK) {
        st = begin_gate(driver, gate);
        weft__cuda_leave(&visit);
    }
    if (st < 0)
        talloc_free(gate);
    else
        *gate_p = gate;
    return st;
}

weft_status_t weft__cuda_gate_new(void *stream, void *owner, void (*reached)(void *arg), void *arg,
                                  struct cuda_gate **gate_p) {
    const struct cuda_gate of = {.stream = stream, .owner = owner, .reached = reached, .arg = arg};
    return new_gate(&of, gate_p);
}

/* With the lock held. */
static void end_gate(struct cuda_gate *gate) {
    give_word(gate);
    list_remove(&gate->of_all);
    talloc_free(gate);
}

void weft__cuda_gate_free(struct cuda_gate *gate) {
    pthread_mutex_lock(&mutex);
    __atomic_store_n((uint32_t *)(void *)gate->at, gate->value, __ATOMIC_RELEASE);
    end_gate(gate);
    pthread_mutex_unlock(&mutex);
}

/* With the lock held. The last of its owner, the driver and the call that places it ends a gate. */
static void end_if_over(struct cuda_gate *gate) {
    if (gate->is_open && gate->is_passed && gate->is_placed) end_gate(gate);
}

static void gate_reached(void *arg) {
    struct cuda_gate *gate = arg;
    pthread_mutex_lock(&mutex);
    gate->is_passed = true;
    if (!gate->is_reached) {
        gate->is_reached = true;
        gate->reached(gate->arg);
    }
    end_if_over(gate);
    pthread_mutex_unlock(&mutex);
}

/* With the lock held: the stream's later work goes on. */
static void open_gate(struct cuda_gate *gate) {
    __atomic_store_n((uint32_t *)(void *)gate->at, gate->value, __ATOMIC_RELEASE);
    gate->is_open = true;
}

/* `wait` is the result of the wait. If it was refused, what has not begun is left. False: it began,
 * and nothing is held back. */
static bool leave_if_refused(struct cuda_gate *gate, cuda_result wait) {
    pthread_mutex_lock(&mutex);
    bool leaves = wait != 0 && !gate->is_reached;
    if (wait != 0) drop_words(gate->context, wait);
    if (leaves) {
        gate->is_reached = true;
        open_gate(gate);
    }
    gate->is_placed = true;
    end_if_over(gate);
    pthread_mutex_unlock(&mutex);
    return leaves;
}

/* The wait goes behind the call: later work waits even while the call is yet to come. */
static weft_status_t place(const struct cuda_driver *driver, struct cuda_gate *gate) {
    weft_status_t st = weft__cuda_status(driver->host_call(gate->stream, gate_reached, gate),
                                         "could not add an operation to op->stream");
    if (st < 0) {
        weft__cuda_gate_free(gate);
        return st;
    }
    cuda_result wait = driver->stream_wait_value(gate->stream, gate->device, gate->value, AT_LEAST);
    if (!leave_if_refused(gate, wait)) return WEFT_OK;
    if (wait == CUDA_NOT_SUPPORTED)
        return weft__fail(WEFT_ERR_UNSUPPORTED, "op->stream: its device waits for no values");
    return weft__cuda_status(wait, "op->stream cannot wait for an operation");
}

weft_status_t weft__cuda_gate_place(struct cuda_gate *gate) {
    const struct cuda_driver *driver = weft__cuda_driver();
    struct cuda_visit visit;
    weft_status_t st =
        weft__cuda_status(weft__cuda_enter(gate->context, &visit), "the stream's context is gone");
    if (st < 0) {
        weft__cuda_gate_free(gate);
        return st;
    }
    pthread_rwlock_rdlock(&placing);
    st = place(driver, gate);
    pthread_rwlock_unlock(&placing);
    weft__cuda_leave(&visit);
    return st;
}

/* ---- calls of the driver that may wait for streams */

/* A launch of a graph is not known before it gets to the gate. */
static bool holds_back(const struct cuda_gate *gate) {
    return gate->is_recorded ? gate->owner != NULL : gate->is_placed && !gate->is_open;
}

bool weft__cuda_gates_rest(void) {
    bool any = false;
    if (pthread_rwlock_trywrlock(&placing) != 0) return false;
    pthread_mutex_lock(&mutex);
    list_for_each(n, &gates) any = any || holds_back(list_of(n, struct cuda_gate, of_all));
    pthread_mutex_unlock(&mutex);
    if (any) pthread_rwlock_unlock(&placing);
    return !any;
}

void weft__cuda_gates_go_on(void) {
    pthread_rwlock_unlock(&placing);
}

/* ---- in a graph */

bool weft__cuda_stream_is_captured(void *stream) {
    const struct cuda_driver *driver = weft__cuda_driver();
    cuda_capture capture = 0;
    return driver && driver->stream_is_capturing &&
           driver->stream_is_capturing(stream, &capture) == 0 && capture != 0;
}

/* On the driver's thread, at each launch, before the graph waits for the word. */
static void recorded_reached(void *arg) {
    struct cuda_gate *gate = arg;
    pthread_mutex_lock(&mutex);
    bool passes = gate->owner == NULL;
    __atomic_store_n((uint32_t *)(void *)gate->at, passes ? gate->value : gate->value - 1,
                     __ATOMIC_RELEASE);
    if (!passes) gate->reached(gate->arg);
    pthread_mutex_unlock(&mutex);
}

/* Where the wait is refused, the graph may have the call already: it passes the gate. */
static weft_status_t record(const struct cuda_driver *driver, struct cuda_gate *gate) {
    weft_status_t st = weft__cuda_status(driver->host_call(gate->stream, recorded_reached, gate),
                                         "could not record an operation in the graph");
    if (st < 0) {
        weft__cuda_gate_free(gate);
        return st;
    }
    cuda_result r = driver->stream_wait_value(gate->stream, gate->device, gate->value, AT_LEAST);
    if (r == 0) return WEFT_OK;
    pthread_mutex_lock(&mutex);
    gate->owner = NULL;
    pthread_mutex_unlock(&mutex);
    (void)weft__cuda_status(r, "cuStreamWaitValue32");
    return weft__fail(WEFT_ERR_UNSUPPORTED,
                      "the CUDA driver captures no wait for a value in a graph (CUDA 12 does)");
}

weft_status_t weft__cuda_gate_record(void *stream, void *owner, void (*reached)(void *arg),
                                     void *arg, struct cuda_gate **gate_p) {
    const struct cuda_driver *driver = weft__cuda_driver();
    const struct cuda_gate of = {
        .stream = stream, .owner = owner, .reached = reached, .arg = arg, .is_recorded = true};
    struct cuda_gate *gate;
    struct cuda_visit visit;
    weft_status_t st = new_gate(&of, &gate);
    if (st < 0) return st;
    gate->is_reached = true; /* nothing waits for it between launches */
    st = weft__cuda_status(weft__cuda_enter(gate->context, &visit), "the stream's context is gone");
    if (st < 0) {
        weft__cuda_gate_free(gate);
        return st;
    }
    pthread_rwlock_rdlock(&placing);
    st = record(driver, gate);
    pthread_rwlock_unlock(&placing);
    weft__cuda_leave(&visit);
    if (st == WEFT_OK) *gate_p = gate;
    return st;
}

/* ---- leaving, and opening */

bool weft__cuda_gate_leave(struct cuda_gate *gate) {
    pthread_mutex_lock(&mutex);
    bool leaves = !gate->is_reached;
    gate->is_reached = true;
    pthread_mutex_unlock(&mutex);
    return leaves;
}

/* Where an error keeps the driver from calling `gate_reached`, the gate's few bytes stay. */
void weft__cuda_gate_open(struct cuda_gate *gate) {
    pthread_mutex_lock(&mutex);
    open_gate(gate);
    end_if_over(gate);
    pthread_mutex_unlock(&mutex);
}

void weft__cuda_gates_leave(const void *owner, bool (*leaves)(void *arg, const void *which),
                            const void *which) {
    pthread_mutex_lock(&mutex);
    list_for_each(n, &gates) {
        struct cuda_gate *gate = list_of(n, struct cuda_gate, of_all);
        if (gate->owner == owner && gate->is_recorded && !which) {
            gate->owner = NULL;
            __atomic_store_n((uint32_t *)(void *)gate->at, gate->value, __ATOMIC_RELEASE);
        }
        if (gate->owner != owner || gate->is_reached) continue;
        gate->is_reached = leaves(gate->arg, which);
    }
    pthread_mutex_unlock(&mutex);
}
