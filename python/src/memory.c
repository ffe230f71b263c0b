/* Regions that peers may read and write, and keys to peers' regions. */
#include "core.h"

/* What outlives the object: a buffer is not given back while a peer can reach it. */
struct ending {
    struct worker *worker;
    Py_buffer view;
};

struct memory {
    PyObject_HEAD weft_mem_t *handle; /* NULL: released */
    struct worker *worker;
    struct child child;
    struct ending *after; /* of registered memory; NULL: allocated */
    weft_mem_info_t info;
    struct request *ending; /* its release, in progress */
    atomic_size_t exports;  /* any thread */
    bool closes;            /* it gets no further users; changes with the worker's lists */
    bool of_device;
};

static PyObject *made(struct worker *w, struct memory *m, weft_status_t status) {
    if (status == WEFT_OK) {
        weft__py_adopt(w, &m->child, (void **)&m->handle);
        status = weft_mem_describe(m->handle, &m->info);
    }
    if (status == WEFT_OK) return (PyObject *)m;
    Py_DECREF((PyObject *)m);
    return weft__py_raise(w->state, status);
}

static struct memory *allocate(struct worker *w) {
    struct memory *m = (struct memory *)PyType_GenericAlloc(w->state->memory, 0);
    if (m) m->worker = (struct worker *)Py_NewRef((PyObject *)w);
    return m;
}

static PyObject *worker_alloc(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"len", "rights", "expose", NULL};
    struct worker *w = (struct worker *)self;
    Py_ssize_t len;
    unsigned rights = WEFT_MEM_ALL;
    int expose = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "n|O&p", names, &len, weft__py_u32, &rights,
                                     &expose) ||
        weft__py_own(w) < 0) {
        return NULL;
    }
    if (len < 0) return weft__py_raise_text(w->state, WEFT_ERR_INVALID_PARAM, "len is negative");
    weft_mem_params_t params = {.rights = rights, .expose = expose};
    struct memory *m = allocate(w);
    return m ? made(w, m, weft_mem_alloc(w->handle, len, &params, &m->handle)) : NULL;
}

static PyObject *worker_register(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"buffer", "rights", NULL};
    struct worker *w = (struct worker *)self;
    PyObject *object;
    unsigned rights = WEFT_MEM_ALL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O&", names, &object, weft__py_u32, &rights) ||
        weft__py_own(w) < 0) {
        return NULL;
    }
    bool writes = rights & (WEFT_MEM_WRITE | WEFT_MEM_ATOMIC);
    weft_mem_params_t params = {.rights = rights};
    struct memory *m = allocate(w);
    if (!m) return NULL;
    struct ending *after = m->after = calloc(1, sizeof *after);
    if (!after) {
        Py_DECREF((PyObject *)m);
        return PyErr_NoMemory();
    }
    after->worker = w;
    PyObject *stand_in = NULL; /* the view keeps it */
    int failed = weft__py_view(w->state, object, writes ? PyBUF_WRITABLE : PyBUF_SIMPLE,
                               &after->view, &stand_in, &m->of_device);
    Py_XDECREF(stand_in);
    if (failed) {
        after->view.obj = NULL;
        Py_DECREF((PyObject *)m);
        return NULL;
    }
    return made(
        w, m, weft_mem_register(w->handle, after->view.buf, after->view.len, &params, &m->handle));
}

static int open_here(struct memory *m) {
    if (m->handle) return weft__py_owned(m->worker);
    weft__py_raise(m->worker->state, WEFT_ERR_CLOSED);
    return -1;
}

/* ---- the end of a region ---- */

static void ended(weft_status_t status, void *arg) {
    struct ending *ending = arg;
    PyThreadState *was;
    if (weft__py_enter(ending->worker, &was)) {
        PyBuffer_Release(&ending->view);
        weft__py_leave(ending->worker, was);
    } else { /* within the end of the worker, which is without the lock */
        PyGILState_STATE lock = PyGILState_Ensure();
        PyBuffer_Release(&ending->view);
        PyGILState_Release(lock);
    }
    free(ending);
}

/* If the library refuses, peers may still reach the memory, and the buffer is never given back. */
static void end(struct worker *unused, void *handle, void *after) {
    weft_op_t op = {.done = after ? ended : NULL, .arg = after};
    weft_status_t status = handle ? weft_mem_release(handle, &op) : WEFT_OK;
    if (status == WEFT_OK && after) ended(WEFT_OK, after);
}

static void released(struct request *request) {
    struct memory *m = (struct memory *)request->keep;
    m->handle = NULL;
    m->ending = NULL;
}

/* False: it is in use. Another thread may ask for its buffer at any moment. */
static bool ends_use(struct memory *m) {
    weft__py_lock_lists(m->worker);
    m->closes = !m->exports;
    weft__py_unlock_lists(m->worker);
    return m->closes;
}

/* The program's buffer goes with the object, once the request that keeps it is over. No cancel and
 * no deadline ends that request before no peer can reach the buffer. */
static PyObject *memory_release(PyObject *self, PyObject *unused) {
    struct memory *m = (struct memory *)self;
    if (!m->handle) Py_RETURN_NONE;
    if (weft__py_owned(m->worker) < 0) return NULL;
    if (m->ending) return Py_NewRef((PyObject *)m->ending);
    struct request *r = weft__py_request(m->worker, GIVES_NONE);
    if (!r) return NULL;
    if (!ends_use(m)) {
        weft__py_dropped(r);
        PyErr_SetString(PyExc_BufferError, "arrays or views of this memory are still in use");
        return NULL;
    }
    r->keep = Py_NewRef(self);
    r->over = released;
    weft_op_t op = weft__py_op(r, 0, 0);
    op.request_p = NULL;
    weft_status_t status = weft_mem_release(m->handle, &op);
    if (status == WEFT_IN_PROGRESS) m->ending = r;
    if (status < 0) r->over = NULL, m->closes = false;
    return weft__py_posted(r, status);
}

static PyObject *memory_revoke(PyObject *self, PyObject *args) {
    struct memory *m = (struct memory *)self;
    unsigned long deadline_ms = 0;
    if (!PyArg_ParseTuple(args, "|k", &deadline_ms)) return NULL;
    if (open_here(m) < 0) return NULL;
    struct request *r = weft__py_request(m->worker, GIVES_NONE);
    if (!r) return NULL;
    r->keep = Py_NewRef(self);
    weft_op_t op = weft__py_op(r, deadline_ms, 0);
    return weft__py_posted(r, weft_mem_revoke(m->handle, &op));
}

/* A worker may hold its regions. */
static int traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((struct memory *)self)->worker);
    return 0;
}

static void dealloc(PyObject *self) {
    struct memory *m = (struct memory *)self;
    PyObject_GC_UnTrack(self);
    weft__py_end(m->worker, &m->child, end, m->after);
    Py_XDECREF((PyObject *)m->worker);
    weft__py_free(self);
}

/* ---- the region ---- */

static PyObject *memory_key(PyObject *self, PyObject *unused) {
    struct memory *m = (struct memory *)self;
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    if (open_here(m) < 0) return NULL;
    weft_status_t status = weft_mem_pack(m->handle, key, &len);
    return status < 0 ? weft__py_raise(m->worker->state, status)
                      : PyBytes_FromStringAndSize(key, len);
}

static PyObject *memory_describe(PyObject *self, PyObject *unused) {
    struct memory *m = (struct memory *)self;
    if (open_here(m) < 0) return NULL;
    weft_status_t status = weft_mem_describe(m->handle, &m->info);
    if (status < 0) return weft__py_raise(m->worker->state, status);
    return Py_BuildValue("{sKsnsIsisnsIsI}", "base", (unsigned long long)(uintptr_t)m->info.base,
                         "len", (Py_ssize_t)m->info.len, "rights", m->info.rights, "numa_node",
                         m->info.numa_node, "page", (Py_ssize_t)m->info.page, "epoch",
                         m->info.epoch, "n_peers", m->info.n_peers);
}

static bool begin_use(struct memory *m) {
    struct worker *w = m->worker;
    weft__py_lock_lists(w);
    bool begins = m->handle && !m->ending && !m->closes && !w->ending && !w->closes;
    if (begins) {
        m->exports++;
        w->exports++;
    }
    weft__py_unlock_lists(w);
    return begins;
}

static void release_buffer(PyObject *self, Py_buffer *view) {
    struct memory *m = (struct memory *)self;
    m->exports--;
    m->worker->exports--;
}

/* Memory that is about to go, with its region or its worker, gets no further users. */
static int get_buffer(PyObject *self, Py_buffer *view, int flags) {
    struct memory *m = (struct memory *)self;
    if (m->of_device) {
        PyErr_SetString(PyExc_BufferError, "memory of a GPU: use the array that was registered");
        return -1;
    }
    if (!begin_use(m)) {
        weft__py_raise(m->worker->state, WEFT_ERR_CLOSED);
        return -1;
    }
    int readonly = m->after && m->after->view.readonly;
    int failed = PyBuffer_FillInfo(view, self, m->info.base, m->info.len, readonly, flags);
    if (failed) release_buffer(self, NULL);
    return failed;
}

static Py_ssize_t length(PyObject *self) {
    return ((struct memory *)self)->info.len;
}

static PyObject *memory_repr(PyObject *self) {
    const struct memory *m = (struct memory *)self;
    return PyUnicode_FromFormat("<weft.Memory: %zu bytes at %p%s>", m->info.len, m->info.base,
                                m->handle ? "" : ", released");
}

static PyObject *get_worker(PyObject *self, void *unused) {
    return Py_NewRef((PyObject *)((struct memory *)self)->worker);
}

static PyObject *get_address(PyObject *self, void *unused) {
    return PyLong_FromVoidPtr(((struct memory *)self)->info.base);
}

static PyMethodDef methods[] = {
    {"key", memory_key, METH_NOARGS, "The key for peers, as bytes."},
    {"describe", memory_describe, METH_NOARGS, "A dict: base, len, rights, epoch, n_peers, …"},
    {"post_release", memory_release, METH_NOARGS, "Ends the region; peers lose it first."},
    {"post_revoke", memory_revoke, METH_VARARGS,
     "post_revoke(deadline_ms=0): keys become useless."},
    {"__dlpack__", (PyCFunction)(void (*)(void))weft__py_dlpack, METH_VARARGS | METH_KEYWORDS,
     "A DLPack capsule of this memory."},
    {"__dlpack_device__", weft__py_dlpack_device, METH_NOARGS, "(1, 0): the host."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef members[] = {{"address", get_address, NULL, "of the first byte", NULL},
                                {"worker", get_worker, NULL, "whose region it is", NULL},
                                {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, dealloc},
                              {Py_tp_traverse, traverse},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, members},
                              {Py_tp_repr, memory_repr},
                              {Py_mp_length, length},
                              {Py_bf_getbuffer, get_buffer},
                              {Py_bf_releasebuffer, release_buffer},
                              {0, NULL}};

PyType_Spec weft__py_memory_spec = {
    "weft._core.Memory", sizeof(struct memory), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

PyMethodDef weft__py_memory_methods[] = {
    {"alloc", (PyCFunction)(void (*)(void))worker_alloc, METH_VARARGS | METH_KEYWORDS,
     "alloc(len, rights=7, expose=False) -> Memory: zeroed memory that peers on this host can map"},
    {"register", (PyCFunction)(void (*)(void))worker_register, METH_VARARGS | METH_KEYWORDS,
     "register(buffer, rights=7) -> Memory: the program's memory as a region"},
    {NULL, NULL, 0, NULL}};
