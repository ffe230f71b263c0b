/* Streams. */
#include "core.h"

static PyObject *ep_stream_send(PyObject *self, PyObject *args) {
    struct ep *ep = (struct ep *)self;
    PyObject *buffer;
    unsigned long deadline_ms = 0;
    if (!PyArg_ParseTuple(args, "O|k", &buffer, &deadline_ms) || weft__py_ep_open(ep) < 0) {
        return NULL;
    }
    struct request *r = weft__py_request_with(ep->worker, GIVES_SENT, buffer, false);
    if (!r) return NULL;
    weft_op_t op = weft__py_op(r, deadline_ms, 0);
    return weft__py_posted(
        r, weft_stream_send_counted(ep->handle, r->buffers.iovs, r->buffers.n, &r->len, &op));
}

static PyObject *ep_stream_recv(PyObject *self, PyObject *args) {
    struct ep *ep = (struct ep *)self;
    PyObject *buffer;
    int all = 0;
    unsigned long deadline_ms = 0;
    if (!PyArg_ParseTuple(args, "O|pk", &buffer, &all, &deadline_ms) || weft__py_ep_open(ep) < 0) {
        return NULL;
    }
    struct request *r = weft__py_request_with(ep->worker, GIVES_LENGTH, buffer, true);
    if (!r) return NULL;
    weft_op_t op = weft__py_op(r, deadline_ms, all ? WEFT_STREAM_WAIT_ALL : 0);
    return weft__py_posted(
        r, weft_stream_recv(ep->handle, r->buffers.iovs, r->buffers.n, &r->len, &op));
}

/* The next bytes as a bytes object; None if there are none yet. */
static PyObject *ep_stream_take(PyObject *self, PyObject *unused) {
    struct ep *ep = (struct ep *)self;
    const void *data;
    size_t len;
    if (weft__py_ep_open(ep) < 0) return NULL;
    weft_status_t status = weft_stream_take(ep->handle, &data, &len);
    if (status == WEFT_ERR_NOT_FOUND) Py_RETURN_NONE;
    if (status < 0) return weft__py_raise(ep->worker->state, status);
    PyObject *bytes = PyBytes_FromStringAndSize(data, len);
    weft_stream_release(ep->worker->handle, data);
    return bytes;
}

static void on_data(weft_ep_t *handle, void *arg) {
    struct worker *worker = arg;
    PyThreadState *was;
    if (!weft__py_enter(worker, &was)) return;
    weft__py_signals(worker);
    PyObject *ep = weft__py_ep_of(worker, handle);
    if (ep != Py_None) weft__py_notify_object(worker, ep, worker->state->stream_data, NULL);
    Py_DECREF(ep);
    weft__py_leave(worker, was);
}

static PyObject *ep_stream_watch(PyObject *self, PyObject *args) {
    struct ep *ep = (struct ep *)self;
    int on;
    if (!PyArg_ParseTuple(args, "p", &on) || weft__py_ep_open(ep) < 0) return NULL;
    return weft__py_checked(ep->worker->state,
                            weft_stream_on_data(ep->handle, on ? on_data : NULL, ep->worker));
}

PyMethodDef weft__py_stream_methods[] = {
    {"post_stream_send", ep_stream_send, METH_VARARGS,
     "post_stream_send(buffers, deadline_ms=0): a failure's `sent` is the number of bytes "
     "appended."},
    {"post_stream_recv", ep_stream_recv, METH_VARARGS,
     "post_stream_recv(buffers, all=False, deadline_ms=0) -> bytes received, or a Request"},
    {"stream_take", ep_stream_take, METH_NOARGS,
     "The next bytes, None if there are none yet, or raises what ended the stream."},
    {"stream_watch", ep_stream_watch, METH_VARARGS,
     "stream_watch(on): _stream_data() is called once there are bytes that no receive waits for."},
    {NULL, NULL, 0, NULL}};
