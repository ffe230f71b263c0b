/*
 * What the files of the extension share: the objects, and how an operation is posted and reported.
 *
 * An object belongs to its worker's thread, as in C. Callbacks of the library only mark requests as
 * complete; weft__py_deliver then reports all of a wake-up to Python at once.
 */
#ifndef WEFT_PYTHON_CORE_H
#define WEFT_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

struct state {
    PyTypeObject *context, *worker, *ep, *listener, *request, *message, *taken, *block, *memory,
        *rkey, *team, *view, *coll, *layout, *graph;
    PyObject *make_error;  /* (status, text) -> exception */
    PyObject *find_buffer; /* (object, writable) -> an object with the buffer protocol */
    PyObject *set_result, *set_exception, *done, *ready, *lost, *gone, *stream_data,
        *append;         /* interned names */
    struct worker *left; /* by their last reference, on another thread: ends.c */
    atomic_uint n_left;
    atomic_flag leaving; /* held while `left` changes */
};

/* A library object that ends with its worker: then *handle is NULL. */
struct child {
    struct child *next, **prev;
    void **handle;
    bool orphan; /* of ends.c: its object is gone */
    bool is_ep;
};

struct worker {
    PyObject_HEAD weft_worker_t *handle; /* NULL: closed */
    struct state *state;
    PyObject *context;
    PyObject *ep_type;     /* of endpoints; a subclass of Endpoint */
    PyObject *on_endpoint; /* of endpoints that peers open by this worker's address */
    struct handler *handlers;
    unsigned long owner;  /* the thread that made it, or has adopted it */
    pid_t owner_id;       /* the kernel's id of the thread that made it */
    struct graph *graphs; /* open ones, of its teams */
    struct child *children;
    struct finalizer *finalizers;  /* of views that end: view.c */
    atomic_flag listing;           /* held while a list of the worker's changes */
    unsigned n_looking;            /* other threads, by weft__py_look; changes with `listing` */
    struct request *first, **last; /* complete, and not reported yet */
    struct request *spare;
    /* Its close, in progress: of what it has, regions and keys are there until its end, and all
     * else may be gone. Changes with `listing`. */
    struct request *ending;
    PyThreadState *unlocked; /* while the library runs without the interpreter's lock */
    atomic_size_t exports;   /* buffers of regions that Python refers to, on any thread */
    bool unlock;             /* progress releases the interpreter's lock */
    bool polls;              /* an operation drives the worker until it has ended */
    bool turning;            /* within the library's progress */
    struct worker *next_left;
    PyObject *raised; /* in a callback, to end the call that drives: weft__py_interrupted */
    bool dead;        /* no callback enters Python any more */
    bool closes;      /* its regions get no further users; changes with `listing` */
    bool was_closed;
};

struct ep {
    PyObject_HEAD weft_ep_t *handle; /* NULL: closed */
    struct worker *worker;
    struct child child;
    struct team *team; /* whose endpoint it is: it ends with the team */
};

/* A device and an element's type, as in DLPack's ABI. */
struct device {
    int32_t type, id;
};
enum { DEVICE_HOST = 1, DEVICE_CUDA = 2, DEVICE_CUDA_HOST = 3, DEVICE_CUDA_MANAGED = 13 };
static inline bool is_host(struct device device) {
    return device.type == DEVICE_HOST || device.type == DEVICE_CUDA_HOST;
}

struct dtype {
    uint8_t code, bits;
    uint16_t lanes;
};

/* The memory that an operation in progress uses. */
struct buffers {
    struct worker *worker; /* whose operation it is */
    Py_buffer one, *many;  /* `many` if there are several */
    PyObject *stand_in;    /* the object whose buffer is used in place of the program's */
    bool of_device;        /* some of it is memory of a GPU */
    Py_ssize_t n;
    size_t total;       /* bytes */
    weft_iov_t iov;     /* of one buffer */
    weft_iov_t *iovs;   /* of several, or &iov */
    weft_layout_t plan; /* kind 0: contiguous */
    struct walk *walk;
};

/* What an operation gives when it ended well. */
enum result {
    GIVES_NONE,
    GIVES_SENT,   /* None; a failure has the number of bytes that were appended: `len` */
    GIVES_LENGTH, /* int: bytes */
    GIVES_TAGGED, /* (bytes, tag) */
    GIVES_OLD_32, /* int: the word before the atomic */
    GIVES_OLD_64, /* the same */
    GIVES_KEPT,   /* the object in `keep` */
    GIVES_AGREED, /* (int: flags, bytes: a bit for each rank that is lost) */
};

struct request {
    PyObject_HEAD struct worker *worker;
    weft_request_t *handle; /* NULL: it cannot be cancelled */
    struct request *next;
    weft_status_t status; /* WEFT_IN_PROGRESS until the end */
    enum result gives;
    bool reported;
    char *why;        /* of a failure */
    PyObject *raised; /* by a layout of the program's own: the failure */
    struct buffers buffers;
    PyObject *keep;                        /* lives as long as the operation */
    void (*over)(struct request *request); /* called with the end, without the interpreter's lock */
    PyObject *future;                      /* set_result or set_exception is called */
    weft_tag_info_t info;
    size_t len;
    uint64_t old;
};

/* Around what several threads may do to an object. An interpreter's lock is that already. */
#ifdef Py_GIL_DISABLED
#define WEFT__PY_LOCK(object) Py_BEGIN_CRITICAL_SECTION(object)
#define WEFT__PY_UNLOCK()     Py_END_CRITICAL_SECTION()
#else
#define WEFT__PY_LOCK(object) {
#define WEFT__PY_UNLOCK()     }
#endif

/* The lower half of a count is the count in every version of the stable ABI. */
static inline uint32_t weft__py_references(PyObject *object) {
    return (uint32_t)Py_REFCNT(object);
}

/*
 * A new reference to an object that this thread has found without one, in a place from which the
 * object's end takes it under a lock that is held here, too. False: its last reference is gone.
 */
static inline bool weft__py_try_ref(PyObject *object) {
#if defined(Py_GIL_DISABLED) && PY_VERSION_HEX >= 0x030E0000
    return PyUnstable_TryIncRef(object);
#else
    if (!weft__py_references(object)) return false;
    Py_INCREF(object);
    return true;
#endif
}

/* Before another thread can see an object for which that is called. */
static inline void weft__py_enable_try_ref(PyObject *object) {
#if defined(Py_GIL_DISABLED) && PY_VERSION_HEX >= 0x030E0000
    PyUnstable_EnableTryIncRef(object);
#endif
}

/* ---- module.c ---- */
struct state *weft__py_state(PyTypeObject *type);
void weft__py_free(PyObject *self); /* the last step of a dealloc */
/*
 * As PyObject_GetAttrString, by the interned name. The interpreter's cache of methods keeps the
 * name that it was asked for, so each look-up by a string of its own leaves one there.
 */
PyObject *weft__py_attribute(PyObject *object, const char *name);

/* ---- errors.c ---- */
char *weft__py_describe(weft_status_t status); /* malloc'ed; NULL without memory */
/* For "O&": a text of the library's as a str, NULL as None. It may be cut within a character, or be
 * of a peer. */
PyObject *weft__py_text(void *text);
PyObject *weft__py_exception(struct state *state, weft_status_t status, const char *why);
/* Raises the exception of a status; returns NULL. */
void *weft__py_raise(struct state *state, weft_status_t status);
/* For "O&": an int of 64 or 32 bits without a sign, or what has __index__, as numbers of numpy.
 * "K" and "I" cut a larger one off, to another tag, id or rank. */
int weft__py_u64(PyObject *number, void *u64_p);
int weft__py_u32(PyObject *number, void *u32_p);
/* One that does not fit is the largest, which the library refuses. */
static inline uint32_t weft__py_u32_of(long long number) {
    return number < 0 || number > UINT32_MAX ? UINT32_MAX : (uint32_t)number;
}
void *weft__py_raise_text(struct state *state, weft_status_t status, const char *text);
/* The UTF-8 of a str, which lives as long as that. TypeError; ValueError if it has a zero in it. */
const char *weft__py_utf8(PyObject *str);
/* None, or raises. */
PyObject *weft__py_checked(struct state *state, weft_status_t status);
/* Takes the exception that is raised; *kept_p is set to it unless it holds an earlier one. */
void weft__py_keep_raised(PyObject **kept_p);
/* Ends a memoryview over memory of the library, and drops it. NULL is ignored. */
void weft__py_end_view(PyObject *view);

/* ---- buffers.c, strided.c ---- */
int weft__py_hold_buffer(struct state *state, struct buffers *buffers, PyObject *object,
                         bool writes);
/* One object's memory, of the host or a GPU; `*stand_in_p` as in struct buffers. */
int weft__py_view(struct state *state, PyObject *object, int flags, Py_buffer *view,
                  PyObject **stand_in_p, bool *of_device_p);
void weft__py_give_back(struct buffers *buffers);
PyObject *weft__py_check_elements(PyObject *module, PyObject *buffer);
/* Sets `plan` (and `walk`) of one buffer that is not contiguous. */
int weft__py_plan(struct state *state, struct buffers *buffers);
void weft__py_walk_free(struct walk *walk);
/* layout.c: a layout that the program writes in Python */
int weft__py_plan_layout(struct buffers *buffers, PyObject *layout);
PyObject *weft__py_pack_layout(PyObject *layout);
/* Calls layout.pack(offset, view) or unpack. The view does not outlive the call. */
int weft__py_move(PyObject *layout, const char *name, size_t offset, void *memory, size_t len,
                  int access);
/* Copies a buffer's bytes, in the order of its elements; host memory only. */
void weft__py_gather(const struct buffers *buffers, char *to);

/* ---- request.c ---- */
struct request *weft__py_request(struct worker *worker, enum result gives);
/* The same, which holds the buffer. Errors: NULL and an exception; nothing is held then. */
struct request *weft__py_request_with(struct worker *worker, enum result gives, PyObject *buffer,
                                      bool writes);
weft_op_t weft__py_op(struct request *request, unsigned long deadline_ms, uint32_t flags);
/* Takes the request: its result, itself while it is in progress, or NULL and an exception. */
PyObject *weft__py_posted(struct request *request, weft_status_t status);
void weft__py_dropped(struct request *request); /* it was not posted */
void weft__py_done(weft_status_t status, void *request);
Py_ssize_t weft__py_deliver(struct worker *worker);

/* ---- log.c ---- */
void weft__py_log(weft_log_level_t level, const char *room, const char *line, void *unused);
PyObject *weft__py_log_route(PyObject *module, PyObject *args);
PyObject *weft__py_log_dropped(PyObject *module, PyObject *unused);

/* ---- context.c ---- */
weft_context_t *weft__py_context_handle(PyObject *context);

/* ---- worker.c ---- */
bool weft__py_enter(struct worker *worker, PyThreadState **was_p);
void weft__py_leave(struct worker *worker, PyThreadState *was);
/*
 * What no code of a callback can take is raised by the call that drives: what the handler of a
 * signal raises, KeyboardInterrupt and SystemExit.
 */
void weft__py_signals(struct worker *worker); /* runs the handlers of signals that have come */
/* Whether the exception is KeyboardInterrupt or SystemExit: then *kept_p has it, unless it holds an
 * earlier one, and none is set. */
bool weft__py_keep_exit(PyObject **kept_p);
/* The same, for the call that drives the worker. */
bool weft__py_keeps_exit(struct worker *worker);
/* Reports the exception of a callback, of this object: kept to be raised, or unraisable. */
void weft__py_report(struct worker *worker, PyObject *of);
/*
 * Calls a function of the binding's own with up to two arguments, and reports what it raises. One
 * that an exit has ended half way is called again: it does what is left to do.
 */
void weft__py_notify(struct worker *worker, PyObject *fn, PyObject *one, PyObject *other);
/* The same of a method, with one argument or NULL. */
void weft__py_notify_object(struct worker *worker, PyObject *object, PyObject *name,
                            PyObject *argument);
/*
 * Takes what a function of the program has raised within an operation: *kept_p is the operation's
 * failure, unless it holds an earlier one. An exit is the driving call's, and the failure is
 * CancelledError.
 */
void weft__py_keep_failure(struct worker *worker, PyObject **kept_p);
int weft__py_interrupted(struct worker *worker);           /* -1: one was kept, and is raised */
int weft__py_turn(struct worker *worker, unsigned budget); /* weft_worker_progress */
int weft__py_wait(struct worker *worker, int timeout_ms);  /* weft_worker_wait */
void weft__py_destroy(struct worker *worker);
/* Whether this thread may use what is the worker's: 0, or -1 and ClosedError or WrongThreadError.
 * Without an interpreter's lock the library's own check is too late: the owner may be ending the
 * object, and uses the spare request. */
int weft__py_own(struct worker *worker);
int weft__py_owned(struct worker *worker); /* the same without ClosedError */

/* ---- ends.c ---- */
void weft__py_adopt(struct worker *worker, struct child *child, void **handle);
void weft__py_disown(struct worker *worker, struct child *child);
void weft__py_lock_lists(struct worker *worker);
void weft__py_unlock_lists(struct worker *worker);
/* Its close begins: when this returns, no other thread looks at it (weft__py_look), until the close
 * is refused (NULL). */
void weft__py_begin_close(struct worker *worker, struct request *close);
void weft__py_closes(struct worker *worker); /* it has begun: it has no endpoint any more */
/* Any thread may ask what a worker is, while it is open. 0: the caller ends that by
 * weft__py_looked; or -1 and ClosedError. */
int weft__py_look(struct worker *worker);
void weft__py_looked(struct worker *worker);
bool weft__py_is_owner(const struct worker *worker);
typedef void (*weft__py_end_fn)(struct worker *worker, void *handle, void *arg);
/*
 * Ends the library's object of one whose last reference is gone, on any thread. end(worker,
 * handle, arg) is called once, on the worker's thread, with a handle of NULL if there was none or
 * the worker has ended it. It may come without the interpreter's lock. Without memory it does not
 * come, and the library's object ends with the worker.
 */
void weft__py_end(struct worker *worker, struct child *child, weft__py_end_fn end, void *arg);
/* Of any thread: calls a function on the worker's, and ends its wait. False: it closes, or there is
 * no memory. */
bool weft__py_post(struct worker *worker, void (*fn)(void *arg), void *arg);
void weft__py_wake(struct worker *worker);
/* Drops a reference where the interpreter's lock may not be held. */
void weft__py_forget(struct worker *worker, PyObject *object);
void weft__py_ended(struct worker *worker); /* the worker is gone, and all that it had */
/* The finalizer of a worker: on another thread it lives on until its own takes it, or, where that
 * has ended, the turn of any worker. */
void weft__py_leave_to_owner(PyObject *worker);
/* Ends those of this thread, and of threads that have ended. */
void weft__py_take_left(struct state *state);

/* ---- endpoint.c ---- */
PyObject *weft__py_ep_new(struct worker *worker, weft_ep_t *handle);
PyObject *weft__py_ep_of(struct worker *worker, weft_ep_t *handle); /* a new reference, or None */
void weft__py_call_endpoint(struct worker *worker, weft_ep_t *handle, PyObject *const *fn_p);
void weft__py_on_ready(weft_ep_t *handle, void *worker);
void weft__py_on_lost(weft_ep_t *handle, weft_status_t status, void *worker);
int weft__py_ep_open(struct ep *ep);
void weft__py_ep_left(struct child *child); /* its object has no endpoint any more */

/* The methods of a type lie in the files of their subjects. */
extern PyMethodDef weft__py_connect_methods[]; /* of workers */
extern PyMethodDef weft__py_tag_methods[], weft__py_tag_worker_methods[];
extern PyMethodDef weft__py_am_methods[], weft__py_am_worker_methods[];
extern PyMethodDef weft__py_stream_methods[];
extern PyMethodDef weft__py_rma_methods[], weft__py_memory_methods[];
extern PyMethodDef weft__py_inspect_methods[], weft__py_team_methods[], weft__py_view_methods[];
extern PyType_Spec weft__py_context_spec, weft__py_worker_spec, weft__py_ep_spec,
    weft__py_listener_spec, weft__py_request_spec, weft__py_message_spec, weft__py_taken_spec,
    weft__py_block_spec, weft__py_memory_spec, weft__py_rkey_spec, weft__py_team_spec,
    weft__py_view_spec, weft__py_coll_spec, weft__py_layout_spec, weft__py_graph_spec;
int weft__py_am_traverse(struct worker *worker, visitproc visit, void *arg);
void weft__py_am_clear(struct worker *worker);
int weft__py_finalizers_traverse(struct finalizer *first, visitproc visit, void *arg);
void weft__py_finalizers_clear(struct finalizer **first_p); /* they will call nothing */

/* ---- block.c ---- */

/* Memory that a block is made over. */
struct memory_of {
    void *base;
    const Py_ssize_t *shape, *strides; /* strides in bytes; NULL: in C order */
    int n_dims, itemsize;
    bool readonly;
    const char *format;
    struct device device;
    struct dtype dtype; /* bits 0: as the format says */
};

PyObject *weft__py_block_new(struct state *state, size_t len);
/* Errors: ValueError; UnsupportedError of a device that the library cannot reach. */
PyObject *weft__py_block_over(struct state *state, const struct memory_of *m, PyObject *owner);
/* The memory of a block of bytes, with a shape and a type. */
PyObject *weft__py_block_like(struct state *state, PyObject *bytes, const int64_t *shape,
                              int n_dims, struct dtype dtype);
/* A block as a buffer, be it the host's or not. */
int weft__py_block_view(PyObject *block, Py_buffer *view, int flags, struct device *device_p,
                        struct dtype *dtype_p);
struct device weft__py_block_device(PyObject *block);
PyObject *weft__py_block_around(PyObject *module, PyObject *args, PyObject *kwargs);

/* ---- dlpack.c, exchange.c ---- */
PyObject *weft__py_dlpack(PyObject *owner, PyObject *args, PyObject *kwargs);
PyObject *weft__py_dlpack_device(PyObject *self, PyObject *unused);
PyObject *weft__py_from_dlpack(PyObject *module, PyObject *capsule);
PyObject *weft__py_exchange(PyObject *module, PyObject *object);

#endif
