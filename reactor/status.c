/* Status codes for people, and the causes that this thread's last failing call noted. */
#include "local.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define VERSION_TEXT(major, minor, patch) #major "." #minor "." #patch
#define VERSION(major, minor, patch)      VERSION_TEXT(major, minor, patch)
const char *weft_version(void) {
    return VERSION(WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR, WEFT_VERSION_PATCH);
}

struct status_text {
    const char *name, *sentence, *hint;
};

static const struct status_text done = {"WEFT_OK", "The operation is done.", ""};
static const struct status_text in_progress = {"WEFT_IN_PROGRESS",
                                               "The operation was accepted; its callback will come.", ""};
static const struct status_text no_resource = {"WEFT_NO_RESOURCE", "A transport has no room just now.", ""};
static const struct status_text unknown = {"WEFT_ERR_?", "This is no status of the library.",
                                           "Is the program built against a newer version?"};

#define ERROR(id, sentence, hint) [-WEFT_ERR_##id] = {"WEFT_ERR_" #id, sentence, hint}
static const struct status_text errors[] = {
    ERROR(INVALID_PARAM, "A parameter has a value that it may not have.",
          "The causes name the field; its header says what it may hold."),
    ERROR(NO_MEMORY, "Memory ran out.",
          "Raise the process's memory limit, or lower the sizes in the configuration."),
    ERROR(UNSUPPORTED, "This cannot be done here.",
          "weft-info shows what each transport can do, and why one is missing."),
    ERROR(NOT_FOUND, "There is no such thing.", ""),
    ERROR(BUSY, "The object is in use.",
          "Close what uses it first, wait for what was asked for before, or call from outside the callback."),
    ERROR(CANCELLED, "The operation was cancelled by its owner.", ""),
    ERROR(TIMED_OUT, "The deadline passed before the operation was done.",
          "Allow it more time, or find out whether the peer makes progress."),
    ERROR(CLOSED, "The object was closed on this side.", "Do not use a handle after its close was asked for."),
    ERROR(PEER_CLOSED, "The peer closed the endpoint.", "Connect again if there is more to say."),
    ERROR(PEER_FAILED, "The peer died, or its connection broke.",
          "Look for the peer's own error, then connect again."),
    ERROR(UNREACHABLE, "No transport reaches that address.",
          "Compare the transports of both sides with weft-info; the causes say what each answered."),
    ERROR(REFUSED, "Nobody listens at that address.", "Start the listener first, and compare host and port."),
    ERROR(REJECTED, "The listener refused the connection.", "The listener's program decides whom it accepts."),
    ERROR(PROTOCOL, "The peer said what it may not say.",
          "Something else may be talking to this port; the log shows what was received."),
    ERROR(VERSION, "The peer speaks another version of the wire protocol.", "Run the same version on both sides."),
    ERROR(TRUNCATED, "The message, address or key is longer than the buffer given for it.",
          "Give a larger buffer: of a message weft_tag_probe tells the length, addresses and keys have a largest "
          "one."),
    ERROR(TOO_BIG, "The size is beyond a limit.", "weft-info lists the limits; some are settings."),
    ERROR(QUOTA, "The peer used up what it was granted.",
          "Receive more often, or raise the setting that bounds it (tag.unexpected_bytes, stream.window, "
          "rma.max_served, shm.max_grants)."),
    ERROR(AUTH, "The peer could not prove that it holds the key.",
          "Both sides need the same key file (tcp.key_file); between users the default one differs."),
    ERROR(INSECURE, "Binding beyond this machine needs a cluster key.",
          "Set tcp.key_file, or write out tcp.insecure = yes (of RDMA rdma.insecure)."),
    ERROR(FORKED, "This process is a fork of the one that made the object.",
          "Create a context and a worker of its own in the child."),
    ERROR(WRONG_THREAD, "The call came from a thread that does not own the worker.",
          "Hand it over by weft_worker_post, or make the worker of mode MULTIPLE; one with a thread of its own is "
          "driven by that."),
    ERROR(IO, "A system call failed.", "The causes and the log have its errno."),
    ERROR(NO_FDS, "File descriptors ran out.", "Raise the limit (ulimit -n)."),
    ERROR(ADDRESS, "This is not an address or key, or not one that this version reads.",
          "Write scheme://host:port, or pass the bytes of weft_worker_address or weft_mem_pack unchanged."),
    ERROR(REVOKED, "The key to remote memory was revoked.", "Ask its owner for a new one."),
    ERROR(INTERNAL, "The library reached a state that it believed impossible.",
          "This is a defect: please report it with the trace in the causes."),
    ERROR(EXISTS, "It is taken already.", "Choose another address, or close what has this one."),
};
_Static_assert(sizeof errors / sizeof *errors == 1 - WEFT_STATUS_LAST, "a text for every status");

static const struct status_text *text_of(weft_status_t status) {
    if (status == WEFT_OK) return &done;
    if (status == WEFT_IN_PROGRESS) return &in_progress;
    if (status == WEFT_NO_RESOURCE) return &no_resource;
    return status < 0 && status >= WEFT_STATUS_LAST ? &errors[-status] : &unknown;
}

const char *weft_status_name(weft_status_t status) {
    return text_of(status)->name;
}
const char *weft_status_sentence(weft_status_t status) {
    return text_of(status)->sentence;
}
const char *weft_status_hint(weft_status_t status) {
    return text_of(status)->hint;
}

/* ENOSPC is the end of a limit on memory, wherever we may meet it: of a memfd's pages, or of what epoll keeps for its fds. */
weft_status_t weft__errno_status(int error) {
    switch (error) {
    case ENOMEM:
    case ENOBUFS:
    case ENOSPC: return WEFT_ERR_NO_MEMORY;
    case EMFILE:
    case ENFILE: return WEFT_ERR_NO_FDS;
    case ECONNREFUSED: return WEFT_ERR_REFUSED;
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT: return WEFT_ERR_UNREACHABLE;
    case ETIMEDOUT: return WEFT_ERR_TIMED_OUT;
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE: return WEFT_ERR_PEER_FAILED;
    case EADDRINUSE: return WEFT_ERR_EXISTS;
    default: return WEFT_ERR_IO;
    }
}

/* ---- causes: a fixed piece of memory a thread, innermost first ------------------------------------------ */

enum { MOST_CAUSES = 6, CAUSE_SIZE = 240 };

static _Thread_local struct {
    weft_status_t status;
    unsigned n;
    char text[MOST_CAUSES][CAUSE_SIZE];
} causes;

/* When it is full the innermost stay: they know the reason, the last one only who asked. */
static void note(const char *format, va_list args) {
    unsigned at = causes.n < MOST_CAUSES ? causes.n++ : MOST_CAUSES - 1;
    vsnprintf(causes.text[at], CAUSE_SIZE, format, args);
}

weft_status_t weft__fail(weft_status_t status, const char *format, ...) {
    va_list args;
    causes.status = status;
    causes.n = 0;
    va_start(args, format);
    note(format, args);
    va_end(args);
    return status;
}

weft_status_t weft__fail_in(weft_status_t status, const char *format, ...) {
    va_list args;
    if (causes.status != status) causes.n = 0;
    causes.status = status;
    va_start(args, format);
    note(format, args);
    va_end(args);
    return status;
}

weft_status_t weft__fail_null(const char *name, size_t len) {
    return weft__fail(WEFT_ERR_INVALID_PARAM, "%s is NULL, of %zu", name, len);
}

weft_status_t weft__fail_op(const weft_op_t *op, uint32_t flags) {
    if (weft__op_reserved(op, 0)) return weft__fail(WEFT_ERR_INVALID_PARAM, "op->reserved is not zero");
    return weft__fail(WEFT_ERR_INVALID_PARAM, "flags that this operation does not have: %#x", op->flags & ~flags);
}

weft_status_t weft__fail_layout(void) {
    return weft__fail(WEFT_ERR_UNSUPPORTED, "an operation that moves no bytes of the program's has no layout");
}

weft_status_t weft__check_close(const weft_op_t *op, bool bounded) {
    if (op && op->deadline_ms && !bounded)
        return weft__fail(WEFT_ERR_UNSUPPORTED, "the setting close.timeout bounds this close, and no deadline");
    if (op && op->completion) return weft__fail(WEFT_ERR_UNSUPPORTED, "a close does not count for a completion");
    weft_status_t st = weft__check_op(op, 0);
    return st < 0 ? st : weft__check_no_layout(op);
}

/* A buffer that may be too short, and what it would have needed. */
struct out {
    char *buf;
    size_t size, len;
};

static void put(struct out *out, const char *text) {
    for (; *text; text++, out->len++)
        if (out->len + 1 < out->size) out->buf[out->len] = *text;
}

static size_t describe(weft_status_t status, const char *because, const char *hint, char *buf, size_t size) {
    struct out out = {buf, size, 0};
    const struct status_text *text = text_of(status);
    put(&out, text->name);
    put(&out, ": ");
    put(&out, text->sentence);
    for (unsigned i = causes.n; causes.status == status && i-- > 0;) {
        put(&out, because);
        put(&out, causes.text[i]);
    }
    if (*text->hint) {
        put(&out, hint);
        put(&out, text->hint);
    }
    if (size) buf[out.len < size ? out.len : size - 1] = 0;
    return out.len;
}

size_t weft_status_describe(weft_status_t status, char *buf, size_t size) {
    return describe(status, "\n  because: ", "\n  hint: ", buf, size);
}

void weft__status_line(weft_status_t status, char line[STATUS_LINE]) {
    describe(status, " - because: ", " - hint: ", line, STATUS_LINE);
}
