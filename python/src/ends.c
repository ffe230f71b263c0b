/*
 * What ends with its worker, and the end of what Python has no reference to any more. The collector
 * may drop a last reference on any thread; the library's object is the owner's to end.
 */
#include "core.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The list changes without the interpreter's lock, too: within progress that released it. */
void weft__py_lock_lists(struct worker *w) {
    while (atomic_flag_test_and_set_explicit(&w->listing, memory_order_acquire)) sched_yield();
}
void weft__py_unlock_lists(struct worker *w) {
    atomic_flag_clear_explicit(&w->listing, memory_order_release);
}

/* ---- the list ---- */

static void link_in(struct worker *w, struct child *child, void **handle) {
    child->next = w->children;
    child->prev = &w->children;
    child->handle = handle;
    if (child->next) child->next->prev = &child->next;
    w->children = child;
}

static void *unlink_from(struct child *child) {
    if (!child->prev) return NULL;
    *child->prev = child->next;
    if (child->next) child->next->prev = child->prev;
    child->prev = NULL;
    return *child->handle;
}

void weft__py_adopt(struct worker *worker, struct child *child, void **handle) {
    weft__py_lock_lists(worker);
    link_in(worker, child, handle);
    weft__py_unlock_lists(worker);
}

/* The handle, or NULL: it was none, or is gone with the worker. */
static void *disowned(struct worker *worker, struct child *child) {
    weft__py_lock_lists(worker);
    void *handle = unlink_from(child);
    weft__py_unlock_lists(worker);
    return handle;
}

void weft__py_disown(struct worker *worker, struct child *child) {
    (void)disowned(worker, child);
}

void weft__py_begin_close(struct worker *w, struct request *close) {
    weft__py_lock_lists(w);
    w->ending = close;
    while (close && w->n_looking && !w->dead) { /* dead: threads may have been stopped */
        weft__py_unlock_lists(w);
        Py_BEGIN_ALLOW_THREADS;
        sched_yield();
        Py_END_ALLOW_THREADS;
        weft__py_lock_lists(w);
    }
    weft__py_unlock_lists(w);
}

void weft__py_closes(struct worker *w) {
    weft__py_lock_lists(w);
    for (struct child *child = w->children; child; child = child->next)
        if (child->is_ep) weft__py_ep_left(child);
    weft__py_unlock_lists(w);
}

/* ---- what other threads may do ---- */

/* With the lock. A worker that closes takes no function any more: it may be gone at any moment. */
static bool takes_calls(const struct worker *w) {
    return w->handle && !w->ending;
}

bool weft__py_post(struct worker *w, void (*fn)(void *arg), void *arg) {
    weft__py_lock_lists(w);
    bool posted = takes_calls(w) && weft_worker_post(w->handle, fn, arg) == WEFT_OK;
    weft__py_unlock_lists(w);
    return posted;
}

void weft__py_wake(struct worker *w) {
    weft__py_lock_lists(w);
    if (takes_calls(w)) weft_worker_wake(w->handle);
    weft__py_unlock_lists(w);
}

int weft__py_look(struct worker *w) {
    bool owner = weft__py_is_owner(w);
    weft__py_lock_lists(w);
    bool open = owner ? w->handle != NULL : takes_calls(w);
    if (open && !owner) w->n_looking++;
    weft__py_unlock_lists(w);
    if (!open) weft__py_raise(w->state, WEFT_ERR_CLOSED);
    return open ? 0 : -1;
}

void weft__py_looked(struct worker *w) {
    if (weft__py_is_owner(w)) return;
    weft__py_lock_lists(w);
    w->n_looking--;
    weft__py_unlock_lists(w);
}

/* ---- without a reference ---- */

struct orphan {
    struct child child; /* the first member */
    struct worker *worker;
    void *handle;
    weft__py_end_fn end;
    void *arg;
    bool posted; /* the owner will look at it */
};

static void finish(struct orphan *orphan, void *handle) {
    orphan->end(orphan->worker, handle, orphan->arg);
    free(orphan);
}

/* On the owner's thread. A worker that closes ends all that it has. */
static void on_owner(void *arg) {
    struct orphan *orphan = arg;
    struct worker *w = orphan->worker;
    orphan->posted = false;
    if (orphan->handle && w->ending) return;
    weft__py_disown(w, &orphan->child);
    finish(orphan, orphan->handle);
}

void weft__py_end(struct worker *w, struct child *child, weft__py_end_fn end, void *arg) {
    bool owner = weft__py_is_owner(w), now = w->dead || (owner && !w->ending);
    struct orphan *orphan = now ? NULL : malloc(sizeof *orphan);
    if (orphan) *orphan = (struct orphan){.worker = w, .end = end, .arg = arg};
    weft__py_lock_lists(w);
    void *handle = unlink_from(child);
    if (orphan && handle) { /* it takes the place of the object */
        orphan->handle = handle;
        orphan->child.orphan = true;
        orphan->posted = !owner && takes_calls(w);
        link_in(w, &orphan->child, &orphan->handle);
        if (orphan->posted && weft_worker_post(w->handle, on_owner, orphan) < 0)
            orphan->posted = false;
    }
    weft__py_unlock_lists(w);
    if (now || !handle) {
        free(orphan);
        end(w, w->dead ? NULL : handle, arg);
    }
}

bool weft__py_is_owner(const struct worker *worker) {
    return PyThread_get_thread_ident() == worker->owner;
}

void weft__py_forget(struct worker *worker, PyObject *object) {
    PyThreadState *was;
    if (weft__py_enter(worker, &was)) {
        Py_XDECREF(object);
        weft__py_leave(worker, was);
    } else { /* within the end of the worker, which is without the lock */
        PyGILState_STATE held = PyGILState_Ensure();
        Py_XDECREF(object);
        PyGILState_Release(held);
    }
}

/* ---- a worker without a reference ---- */

static void lock_left(struct state *s) {
    while (atomic_flag_test_and_set_explicit(&s->leaving, memory_order_acquire)) sched_yield();
}
static void unlock_left(struct state *s) {
    atomic_flag_clear_explicit(&s->leaving, memory_order_release);
}

/* Another thread may have the id by now: then not yet. */
static bool owner_has_ended(const struct worker *w) {
    return syscall(SYS_tgkill, getpid(), w->owner_id, 0) < 0 && errno == ESRCH;
}

/* Whether it is this thread's, or is now, since its own has ended. */
static bool takes(struct worker *w) {
    if (weft__py_is_owner(w)) return true;
    if (!owner_has_ended(w) || weft_worker_adopt(w->handle) < 0) return false;
    w->owner = PyThread_get_thread_ident();
    return true;
}

void weft__py_leave_to_owner(PyObject *self) {
    struct worker *w = (struct worker *)self;
    if (!w->handle || w->dead || takes(w)) return;
    Py_INCREF(self);
    lock_left(w->state);
    w->next_left = w->state->left;
    w->state->left = w;
    atomic_fetch_add(&w->state->n_left, 1);
    unlock_left(w->state);
}

/* One that this thread may end, or NULL. */
static struct worker *next_left(struct state *s) {
    lock_left(s);
    struct worker **at = &s->left, *found;
    while (*at && !takes(*at)) at = &(*at)->next_left;
    found = *at;
    if (found) {
        *at = found->next_left;
        atomic_fetch_sub(&s->n_left, 1);
    }
    unlock_left(s);
    return found;
}

void weft__py_take_left(struct state *s) {
    if (atomic_load_explicit(&s->n_left, memory_order_relaxed) == 0) return;
    for (struct worker *w; (w = next_left(s)) != NULL;) {
        weft__py_destroy(w); /* it may refer to itself, and is the collector's then */
        Py_DECREF((PyObject *)w);
    }
}

/* ---- the worker's end ---- */

void weft__py_ended(struct worker *w) {
    weft__py_lock_lists(w); /* another thread may be using it */
    w->handle = NULL;
    w->ending = NULL;
    weft__py_unlock_lists(w);
    for (;;) {
        weft__py_lock_lists(w);
        struct child *child = w->children;
        if (child) {
            unlink_from(child);
            *child->handle = NULL;
        }
        weft__py_unlock_lists(w);
        if (!child) return;
        struct orphan *orphan = child->orphan ? (struct orphan *)child : NULL;
        if (orphan && !orphan->posted) finish(orphan, NULL);
    }
}
