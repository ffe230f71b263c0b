/* Lines of the library's log: to the socket of weft/log.py, if there is one, else to standard
 * error. A line may come from any thread, with the interpreter's lock or without it. */
#include "core.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_int log_fd = -1;
static atomic_int log_pid; /* a fork's child shares the socket, and must not write to it */
static atomic_uint n_writing, n_dropped;

/* As the library does without a function of the program. */
static void to_stderr(weft_log_level_t level, const char *room, const char *line) {
    static const char *const name[] = {"none", "error", "warn", "info", "debug", "trace"};
    char text[1100];
    int len = snprintf(text, sizeof text, "weft: %s: %s: %s\n", name[level], room, line);
    if (len >= (int)sizeof text) len = (int)sizeof text - 1;
    if (write(STDERR_FILENO, text, len) < 0) return; /* it cannot be reported */
}

/* A packet: the level, the room, a zero, the line. It never waits: the reader may need a lock that
 * this thread holds. False: there is no reader. */
static bool hand_over(weft_log_level_t level, const char *room, const char *line) {
    int fd = atomic_load(&log_fd);
    if (fd < 0 || atomic_load(&log_pid) != getpid()) return false;
    char number = (char)level;
    struct iovec part[] = {
        {&number, 1}, {(char *)room, strlen(room) + 1}, {(char *)line, strlen(line)}};
    struct msghdr packet = {.msg_iov = part, .msg_iovlen = 3};
    if (sendmsg(fd, &packet, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS && errno != ENOMEM)
        return false;
    atomic_fetch_add(&n_dropped, 1);
    return true;
}

void weft__py_log(weft_log_level_t level, const char *room, const char *line, void *unused) {
    atomic_fetch_add(&n_writing, 1);
    bool handed_over = hand_over(level, room, line);
    atomic_fetch_sub(&n_writing, 1);
    if (!handed_over) to_stderr(level, room, line);
}

/* log_route(fd): lines go there from now on; -1: to standard error. No thread writes to the socket
 * before this one any more. */
PyObject *weft__py_log_route(PyObject *module, PyObject *args) {
    int fd;
    if (!PyArg_ParseTuple(args, "i", &fd)) return NULL;
    atomic_store(&log_fd, fd);
    /* Threads that were writing have not come into a fork's child. */
    if (atomic_exchange(&log_pid, getpid()) != getpid()) atomic_store(&n_writing, 0);
    while (atomic_load(&n_writing)) sched_yield();
    Py_RETURN_NONE;
}

PyObject *weft__py_log_dropped(PyObject *module, PyObject *unused) {
    return PyLong_FromUnsignedLong(atomic_exchange(&n_dropped, 0));
}
