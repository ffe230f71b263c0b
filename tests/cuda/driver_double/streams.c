/* Streams of the double: threads that run entries in order; events; copies. */
#define _GNU_SOURCE
#include "double.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct entry {
    struct entry *next;
    result (*run)(void *arg);
    void *arg;
};
struct stream {
    struct context *context;
    unsigned long long number; /* the context's */
    struct entry *first, **last;
    unsigned long long added, done;
    bool ends;
    bool is_default, blocks; /* blocks: it and the default stream wait for one another */
    pthread_t thread;
    pthread_cond_t more, less;
    struct stream *all;
    unsigned copies;
    struct graph *captured; /* what is added goes there instead */
};
/* The entries of a stream in their order. */
enum capture_mode { CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED };
struct graph {
    struct entry *first, **last;
    enum capture_mode mode;
    pthread_t captor;
    bool is_invalid;
    struct graph *all; /* it stays, as tests are short */
};
struct event {
    struct event *all;
    unsigned long long added, done; /* times that it was recorded; and that a stream got there */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct stream *streams, *ended;
static struct event *events;
static struct graph *graphs;
static bool held;

static __thread enum capture_mode thread_mode; /* of captures */

bool double_capturing, double_captures_waits = true;
unsigned double_wait_delay_us;
bool double_fail_wait, double_fail_query;
unsigned double_streams, double_copies, double_asked, double_queries;

unsigned double_copies_in(void *stream) {
    return __atomic_load_n(&((struct stream *)stream)->copies, __ATOMIC_RELAXED);
}

void double_hold(bool hold) {
    pthread_mutex_lock(&lock);
    held = hold;
    for (struct stream *s = streams; s; s = s->all) pthread_cond_broadcast(&s->more);
    for (struct stream *s = ended; s; s = s->all) pthread_cond_broadcast(&s->more);
    pthread_mutex_unlock(&lock);
}

/* A driver may crash where a stream is used that went with its context, and so does the double. */
static bool is_gone(const struct stream *s) {
    return s->number != __atomic_load_n(&s->context->number, __ATOMIC_ACQUIRE);
}
static void refuse_gone(const struct stream *s) {
    if (!s || !is_gone(s)) return;
    fprintf(stderr, "a stream is used that went with its context\n");
    abort();
}
/* Entries of a broken context are not run. */
static void run_entry(struct stream *s, struct entry *e) {
    if (is_gone(s)) return;
    result r = double_usable(s->context);
    if (r == SUCCESS) r = e->run(e->arg);
    if (r != SUCCESS && double_usable(s->context) == SUCCESS)
        __atomic_store_n(&s->context->error, r, __ATOMIC_RELEASE);
}

static void *stream_main(void *arg) {
    struct stream *s = arg;
    pthread_mutex_lock(&lock);
    for (;;) {
        while ((held || !s->first) && !(s->ends && !s->first)) pthread_cond_wait(&s->more, &lock);
        struct entry *e = s->first;
        if (!e) break;
        pthread_mutex_unlock(&lock);
        run_entry(s, e);
        pthread_mutex_lock(&lock);
        s->first = e->next;
        if (!s->first) s->last = &s->first;
        s->done++;
        pthread_cond_broadcast(&s->less);
        free(e->arg);
        free(e);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static struct stream *new_stream(struct context *context, bool blocks) {
    struct stream *s = calloc(1, sizeof *s);
    s->context = context;
    s->number = __atomic_load_n(&context->number, __ATOMIC_ACQUIRE);
    s->blocks = blocks;
    s->last = &s->first;
    pthread_cond_init(&s->more, NULL);
    pthread_cond_init(&s->less, NULL);
    pthread_mutex_lock(&lock);
    s->all = streams;
    streams = s;
    double_streams++;
    pthread_mutex_unlock(&lock);
    pthread_create(&s->thread, NULL, stream_main, s);
    return s;
}

enum { LEGACY = 1, PER_THREAD = 2 };
/* No name, and LEGACY, are the context's default stream; PER_THREAD is one of the context and the
 * thread. */
static struct stream *stream_of(void *handle) {
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
    static struct standard {
        struct stream *stream;
        pthread_t thread;
    } standard[MOST];
    static unsigned n;
    if ((uintptr_t)handle > PER_THREAD) return handle;
    struct context *context = double_current();
    bool is_default = (uintptr_t)handle != PER_THREAD;
    struct stream *found = NULL;
    if (!context) return NULL;
    pthread_mutex_lock(&making);
    for (unsigned i = 0; i < n && !found; i++)
        if (standard[i].stream->context == context && !is_gone(standard[i].stream) &&
            standard[i].stream->is_default == is_default &&
            (is_default || pthread_equal(standard[i].thread, pthread_self())))
            found = standard[i].stream;
    if (!found && n < MOST) {
        found = new_stream(context, !is_default);
        found->is_default = is_default;
        standard[n++] = (struct standard){found, pthread_self()};
    }
    pthread_mutex_unlock(&making);
    return found;
}

static result usable(const struct stream *s) {
    refuse_gone(s);
    if (!s) return INVALID_CONTEXT;
    return s->ends ? INVALID_HANDLE : double_usable(s->context);
}

/* With the lock held. */
static void add_entry(struct stream *s, result (*run)(void *arg), void *arg) {
    struct entry *e = calloc(1, sizeof *e), ***last = s->captured ? &s->captured->last : &s->last;
    *e = (struct entry){.run = run, .arg = arg};
    **last = e;
    *last = &e->next;
    if (!s->captured) s->added++;
    pthread_cond_broadcast(&s->more);
}

struct behind {
    struct stream *stream;
    unsigned long long until;
};
static result run_behind(void *arg) {
    const struct behind *b = arg;
    pthread_mutex_lock(&lock);
    while (b->stream->done < b->until) pthread_cond_wait(&b->stream->less, &lock);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}
/* With the lock held: what is in the other stream now comes first. */
static void go_behind(struct stream *s, struct stream *other) {
    if (other->done == other->added || other->captured) return;
    struct behind *b = malloc(sizeof *b);
    *b = (struct behind){other, other->added};
    add_entry(s, run_behind, b);
}
static void order_default(struct stream *s) {
    if (s->captured || !(s->is_default || s->blocks)) return;
    for (struct stream *other = streams; other; other = other->all)
        if (other->context == s->context && (s->is_default ? other->blocks : other->is_default))
            go_behind(s, other);
}

result double_enqueue(void *handle, result (*run)(void *arg), void *arg) {
    struct stream *s = stream_of(handle);
    result r = usable(s);
    if (r != SUCCESS) {
        free(arg);
        return r;
    }
    pthread_mutex_lock(&lock);
    order_default(s);
    add_entry(s, run, arg);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

static result wait_stream(struct stream *s) {
    pthread_mutex_lock(&lock);
    unsigned long long until = s->added;
    while (s->done < until) pthread_cond_wait(&s->less, &lock);
    pthread_mutex_unlock(&lock);
    return double_usable(s->context);
}
result double_wait(void *handle) {
    struct stream *s = stream_of(handle);
    return s && !s->ends ? wait_stream(s) : usable(s);
}
void double_wait_context(const struct context *context) {
    for (struct stream *s = streams; s; s = s->all)
        if (s->context == context && !s->captured) (void)wait_stream(s);
}
void double_wait_all(void) {
    for (struct stream *s = streams; s; s = s->all) (void)wait_stream(s);
    for (struct stream *s = ended; s; s = s->all) (void)wait_stream(s);
}

result double_copy_begins(void) {
    __atomic_fetch_add(&double_copies, 1, __ATOMIC_RELAXED);
    return double_fail_copy && --double_fail_copy == 0 ? LAUNCH_FAILED : SUCCESS;
}

/* As cuThreadExchangeStreamCaptureMode describes the modes of threads and of captures. */
static bool forbids(const struct graph *captured) {
    if (thread_mode == CAPTURE_RELAXED || captured->mode == CAPTURE_RELAXED) return false;
    return pthread_equal(captured->captor, pthread_self()) ||
           (captured->mode == CAPTURE_GLOBAL && thread_mode == CAPTURE_GLOBAL);
}
/* A stream that is captured can be neither asked nor waited for, in any mode. */
static result ask_begins(struct stream *s) {
    refuse_gone(s);
    result r = double_unsafe_begins();
    pthread_mutex_lock(&lock);
    if (s && s->captured) {
        s->captured->is_invalid = true;
        r = CAPTURE_UNSUPPORTED;
    }
    pthread_mutex_unlock(&lock);
    return r;
}
result double_unsafe_begins(void) {
    double_refuse_in_host_function();
    result r = SUCCESS;
    pthread_mutex_lock(&lock);
    for (struct stream *s = streams; s; s = s->all) {
        if (!s->captured || !forbids(s->captured)) continue;
        s->captured->is_invalid = true;
        r = CAPTURE_UNSUPPORTED;
    }
    pthread_mutex_unlock(&lock);
    return r;
}

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

/* ---- streams */

result cuStreamCreate(void **stream, unsigned flags) {
    result r = double_call_begins(NULL);
    if (r == SUCCESS) r = double_unsafe_begins();
    if (r == SUCCESS) r = double_usable(double_current());
    if (r == SUCCESS && double_is_out_of_memory()) r = OUT_OF_MEMORY;
    if (r != SUCCESS) return r;
    enum { NON_BLOCKING = 1 };
    *stream = new_stream(double_current(), !(flags & NON_BLOCKING));
    return SUCCESS;
}
/* What is in it is run before; the memory stays, as tests are short. */
result cuStreamDestroy_v2(struct stream *s) {
    refuse_gone(s);
    pthread_mutex_lock(&lock);
    s->ends = true;
    double_streams--;
    pthread_cond_broadcast(&s->more);
    for (struct stream **at = &streams; *at; at = &(*at)->all)
        if (*at == s) {
            *at = s->all;
            s->all = ended;
            ended = s;
            break;
        }
    pthread_mutex_unlock(&lock);
    pthread_detach(s->thread);
    return double_usable(s->context);
}
/* The error is one of earlier work, after the wait. */
result cuStreamSynchronize(void *stream) {
    result r = ask_begins(stream_of(stream));
    if (r == SUCCESS) r = double_wait(stream);
    return r == SUCCESS ? double_call_begins(NULL) : r;
}
result cuStreamQuery(void *stream) {
    __atomic_fetch_add(&double_queries, 1, __ATOMIC_RELAXED);
    struct stream *s = stream_of(stream);
    result r = ask_begins(s);
    if (r == SUCCESS) r = double_usable(double_current());
    if (r == SUCCESS) r = usable(s);
    if (r == SUCCESS && double_fail_query) r = INVALID_HANDLE;
    if (r != SUCCESS) return r;
    pthread_mutex_lock(&lock);
    bool is_done = s->done == s->added;
    pthread_mutex_unlock(&lock);
    return is_done ? SUCCESS : NOT_READY;
}
result cuStreamGetCtx(void *stream, struct context **context) {
    struct stream *s = stream_of(stream);
    result r = double_call_begins(s ? s->context : NULL);
    if (r != SUCCESS) return r;
    *context = s ? s->context : NULL;
    return s ? double_usable(s->context) : INVALID_CONTEXT;
}
result cuStreamIsCapturing(void *stream, unsigned *status) {
    struct stream *s = stream_of(stream);
    result r = double_call_begins(s ? s->context : NULL);
    if (r != SUCCESS) return r;
    *status = double_capturing || (s && s->captured);
    return SUCCESS;
}

/* ---- graphs */

result cuStreamBeginCapture_v2(void *stream, unsigned mode) {
    struct stream *s = stream_of(stream);
    if (!s || s->captured) return INVALID_VALUE;
    struct graph *graph = calloc(1, sizeof *graph);
    graph->last = &graph->first;
    graph->all = graphs;
    graph->mode = (enum capture_mode)mode;
    graph->captor = pthread_self();
    graphs = graph;
    s->captured = graph;
    return SUCCESS;
}
result cuStreamEndCapture(void *stream, struct graph **graph) {
    struct stream *s = stream_of(stream);
    if (!s || !s->captured) return INVALID_VALUE;
    bool is_invalid = s->captured->is_invalid;
    *graph = is_invalid ? NULL : s->captured;
    s->captured = NULL;
    return is_invalid ? CAPTURE_INVALIDATED : SUCCESS;
}
result cuThreadExchangeStreamCaptureMode(unsigned *mode) {
    unsigned before = thread_mode;
    if (*mode > CAPTURE_RELAXED) return INVALID_VALUE;
    thread_mode = (enum capture_mode) * mode;
    *mode = before;
    return SUCCESS;
}
/* An executable graph is the graph itself. */
result cuGraphInstantiateWithFlags(struct graph **exec, struct graph *graph,
                                   unsigned long long flags) {
    *exec = graph;
    return SUCCESS;
}
result cuGraphLaunch(struct graph *exec, void *stream) {
    result r = SUCCESS;
    for (const struct entry *e = exec->first; e && r == SUCCESS; e = e->next) {
        size_t len = malloc_usable_size(e->arg);
        void *arg = malloc(len);
        memcpy(arg, e->arg, len);
        r = double_enqueue(stream, e->run, arg);
    }
    return r;
}

struct host_call {
    void (*fn)(void *arg);
    void *arg;
};
static __thread bool in_host_function;
void double_refuse_in_host_function(void) {
    if (!in_host_function) return;
    fprintf(stderr, "a host function calls the CUDA driver\n");
    abort();
}
/* One after the other, as those of independent streams may be. */
static result run_host_call(void *arg) {
    static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    const struct host_call *call = arg;
    pthread_mutex_lock(&turn);
    in_host_function = true;
    call->fn(call->arg);
    in_host_function = false;
    pthread_mutex_unlock(&turn);
    return SUCCESS;
}
result cuLaunchHostFunc(void *stream, void (*fn)(void *arg), void *arg) {
    result r = double_call_begins(NULL);
    if (r != SUCCESS) return r;
    struct host_call *call = malloc(sizeof *call);
    *call = (struct host_call){fn, arg};
    return double_enqueue(stream, run_host_call, call);
}

/* ---- words of memory */

struct value {
    uint32_t *at, value;
    struct context *context;
};
static result run_wait(void *arg) {
    const struct value *v = arg;
    while ((int32_t)(__atomic_load_n(v->at, __ATOMIC_ACQUIRE) - v->value) < 0 &&
           double_usable(v->context) == SUCCESS)
        usleep(50);
    return SUCCESS;
}
static result run_write(void *arg) {
    const struct value *v = arg;
    __atomic_store_n(v->at, v->value, __ATOMIC_RELEASE);
    return SUCCESS;
}
static result add_value(void *stream, result (*run)(void *arg), pointer at, uint32_t value) {
    struct stream *s = stream_of(stream);
    struct value *v = malloc(sizeof *v);
    *v = (struct value){(uint32_t *)(void *)double_alias(at, 4), value, s ? s->context : NULL};
    if (double_find(at) && v->at) return double_enqueue(stream, run, v);
    free(v);
    return INVALID_VALUE;
}
result cuStreamWaitValue32_v2(void *stream, pointer at, uint32_t value, unsigned flags) {
    const struct stream *s = stream_of(stream);
    result r = double_call_begins(s ? s->context : NULL);
    if (r != SUCCESS) return r;
    if (s && s->captured && !double_captures_waits) return CAPTURE_UNSUPPORTED;
    if (double_wait_delay_us) {
        (void)double_wait(stream);
        usleep(double_wait_delay_us);
    }
    if (double_fail_wait) return NOT_SUPPORTED;
    return flags == 0 ? add_value(stream, run_wait, at, value) : NOT_SUPPORTED;
}
result cuStreamWriteValue32_v2(void *stream, pointer at, uint32_t value, unsigned flags) {
    return add_value(stream, run_write, at, value);
}

/* ---- events */

result cuEventCreate(struct event **event, unsigned flags) {
    result r = double_usable(double_current());
    if (r == SUCCESS && double_is_out_of_memory()) r = OUT_OF_MEMORY;
    if (r != SUCCESS) return r;
    *event = calloc(1, sizeof **event);
    pthread_mutex_lock(&lock);
    (*event)->all = events;
    events = *event;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}
result cuEventDestroy_v2(struct event *event) {
    return SUCCESS; /* the memory stays: a stream may still have it */
}
struct at_event {
    struct event *event;
    unsigned long long number;
    struct context *context;
};
static result run_record(void *arg) {
    const struct at_event *at = arg;
    pthread_mutex_lock(&lock);
    if (at->event->done < at->number) at->event->done = at->number;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}
static result run_await(void *arg) {
    const struct at_event *at = arg;
    pthread_mutex_lock(&lock);
    while (at->event->done < at->number) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}
static result add_event(void *stream, struct event *event, result (*run)(void *arg)) {
    struct at_event *at = malloc(sizeof *at);
    pthread_mutex_lock(&lock);
    if (run == run_record) event->added++;
    *at = (struct at_event){.event = event, .number = event->added};
    pthread_mutex_unlock(&lock);
    return double_enqueue(stream, run, at);
}
result cuEventRecord(struct event *event, void *stream) {
    return add_event(stream, event, run_record);
}
result cuStreamWaitEvent(void *stream, struct event *event, unsigned flags) {
    return add_event(stream, event, run_await);
}
result cuEventQuery(const struct event *event) {
    pthread_mutex_lock(&lock);
    bool is_done = event->done == event->added;
    pthread_mutex_unlock(&lock);
    return is_done ? SUCCESS : NOT_READY;
}

/* ---- copies */

struct copy {
    char *to;
    const char *from;
    size_t to_pitch, from_pitch, width, rows;
    size_t planes, to_plane, from_plane; /* bytes between planes */
    result result;
};
static result run_copy(void *arg) {
    const struct copy *c = arg;
    if (double_copy_delay_us) usleep(double_copy_delay_us);
    for (size_t p = 0; c->result == SUCCESS && p < c->planes; p++)
        for (size_t i = 0; i < c->rows; i++)
            memcpy(c->to + p * c->to_plane + i * c->to_pitch,
                   c->from + p * c->from_plane + i * c->from_pitch, c->width);
    return c->result;
}

unsigned double_copy_delay_us;
bool double_fail_late;

unsigned double_copies_3d;

/* Memory of a device belongs to the current context, or was opened there. */
static bool is_reachable(pointer at) {
    const struct allocation *a = double_find(at);
    return !a || double_reaches(a, double_current());
}
/* Memory of no context is not copied by the driver where the device has no access: the copy faults.
 */
static bool faults(pointer at) {
    const struct allocation *a = double_find(at);
    return a && (a->block || a->pool) && !double_reaches(a, double_current());
}

/* A copy of memory that is not registered ends within its call. */
static bool is_pageable(pointer at) {
    return !double_find(at);
}

/* A copy that is to fail does so in the call, or (double_fail_late) in its stream. */
static result add_copy(pointer to, pointer from, struct copy copy, void *stream) {
    bool none = !copy.rows || !copy.planes;
    size_t to_len = none ? 0
                         : (copy.planes - 1) * copy.to_plane + (copy.rows - 1) * copy.to_pitch +
                               copy.width,
           from_len = none ? 0
                           : (copy.planes - 1) * copy.from_plane +
                                 (copy.rows - 1) * copy.from_pitch + copy.width;
    result r = double_call_begins(NULL);
    if (r == SUCCESS) r = double_usable(double_current());
    if (r != SUCCESS) return r;
    bool is_fault = faults(to) || faults(from);
    if (!is_fault && !is_reachable(to) && !is_reachable(from)) return INVALID_CONTEXT;
    copy.to = double_alias(to, to_len);
    copy.from = double_alias(from, from_len);
    if (!copy.to || !copy.from) return INVALID_VALUE;
    copy.result = double_copy_begins();
    if (copy.result != SUCCESS && !double_fail_late) return copy.result;
    if (is_fault) copy.result = ILLEGAL_ADDRESS;
    struct stream *in = stream_of(stream);
    if (in) __atomic_fetch_add(&in->copies, 1, __ATOMIC_RELAXED);
    struct copy *own = malloc(sizeof *own);
    *own = copy;
    bool waits = in && !in->captured && (is_pageable(to) || is_pageable(from));
    r = double_enqueue(stream, run_copy, own);
    return waits && r == SUCCESS ? wait_stream(in) : r;
}
static result add_line(pointer to, pointer from, size_t len, void *stream) {
    return add_copy(
        to, from,
        (struct copy){.to_pitch = len, .from_pitch = len, .width = len, .rows = 1, .planes = 1},
        stream);
}
static pointer address(const void *at) {
    return (pointer)(uintptr_t)at;
}
/* Of device memory, which tests may ask for by mistake. */
static bool is_device(pointer at) {
    const struct allocation *a = double_find(at);
    return a && !a->host;
}

result cuMemcpyDtoHAsync_v2(void *to, pointer from, size_t len, void *stream) {
    return is_device(from) ? add_line(address(to), from, len, stream) : INVALID_VALUE;
}
result cuMemcpyHtoDAsync_v2(pointer to, const void *from, size_t len, void *stream) {
    return is_device(to) ? add_line(to, address(from), len, stream) : INVALID_VALUE;
}
result cuMemcpyDtoDAsync_v2(pointer to, pointer from, size_t len, void *stream) {
    return is_device(to) && is_device(from) ? add_line(to, from, len, stream) : INVALID_VALUE;
}
result cuMemcpyAsync(pointer to, pointer from, size_t len, void *stream) {
    return add_line(to, from, len, stream);
}
result cuMemsetD8_v2(pointer at, unsigned char byte, size_t len) {
    char *alias = double_alias(at, len);
    if (!alias) return INVALID_VALUE;
    memset(alias, byte, len);
    return SUCCESS;
}
result cuMemcpyHtoD_v2(pointer to, const void *from, size_t len) {
    double_write((void *)(uintptr_t)to, from, len);
    return SUCCESS;
}
result cuMemcpyDtoH_v2(void *to, pointer from, size_t len) {
    double_read(to, (const void *)(uintptr_t)from, len);
    return SUCCESS;
}

enum { MOST_PITCH = 0x7fffffff };
struct blocks {
    size_t src_x, src_y;
    unsigned src_kind;
    const char *src_host;
    pointer src_device;
    void *src_array;
    size_t src_pitch, dst_x, dst_y;
    unsigned dst_kind;
    char *dst_host;
    pointer dst_device;
    void *dst_array;
    size_t dst_pitch, width, rows;
};
result cuMemcpy2DAsync_v2(const struct blocks *b, void *stream) {
    pointer to = b->dst_kind == KIND_DEVICE ? b->dst_device : address(b->dst_host);
    pointer from = b->src_kind == KIND_DEVICE ? b->src_device : address(b->src_host);
    if (b->width > b->src_pitch || b->width > b->dst_pitch) return INVALID_VALUE;
    if (b->src_pitch > MOST_PITCH || b->dst_pitch > MOST_PITCH) return INVALID_VALUE;
    return add_copy(to, from,
                    (struct copy){.to_pitch = b->dst_pitch,
                                  .from_pitch = b->src_pitch,
                                  .width = b->width,
                                  .rows = b->rows,
                                  .planes = 1},
                    stream);
}

struct planes {
    size_t src_x, src_y, src_z, src_lod;
    unsigned src_kind;
    const char *src_host;
    pointer src_device;
    void *src_array, *reserved0;
    size_t src_pitch, src_height, dst_x, dst_y, dst_z, dst_lod;
    unsigned dst_kind;
    char *dst_host;
    pointer dst_device;
    void *dst_array, *reserved1;
    size_t dst_pitch, dst_height, width, rows, planes;
};
result cuMemcpy3DAsync_v2(const struct planes *p, void *stream) {
    pointer to = p->dst_kind == KIND_DEVICE ? p->dst_device : address(p->dst_host);
    pointer from = p->src_kind == KIND_DEVICE ? p->src_device : address(p->src_host);
    if (p->width > p->src_pitch || p->width > p->dst_pitch || p->rows > p->src_height ||
        p->rows > p->dst_height)
        return INVALID_VALUE;
    if (p->src_pitch > MOST_PITCH || p->dst_pitch > MOST_PITCH) return INVALID_VALUE;
    double_copies_3d++;
    return add_copy(to, from,
                    (struct copy){.to_pitch = p->dst_pitch,
                                  .from_pitch = p->src_pitch,
                                  .width = p->width,
                                  .rows = p->rows,
                                  .planes = p->planes,
                                  .to_plane = p->dst_pitch * p->dst_height,
                                  .from_plane = p->src_pitch * p->src_height},
                    stream);
}
