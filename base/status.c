/* Status codes for people, and the causes that this thread's last failing call noted. */
#include "status.h"

#include "check.h"
#include "per_thread.h"
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
static const struct status_text in_progress = {
    "WEFT_IN_PROGRESS", "The operation was accepted and its callback will be called.", ""};
static const struct status_text no_resource = {"WEFT_NO_RESOURCE",
                                               "The transport has no room at the moment.", ""};
static const struct status_text unknown = {"WEFT_ERR_?", "The library does not define this status.",
                                           "Is the program built against a newer version?"};

#define ERROR(id, sentence, hint) [-WEFT_ERR_##id] = {"WEFT_ERR_" #id, sentence, hint}
static const struct status_text errors[] = {
    ERROR(INVALID_PARAM, "A parameter has a value that is not allowed.",
          "The causes name the parameter; its header lists which values are valid."),
    ERROR(NO_MEMORY, "Memory ran out.",
          "Raise the process's memory limit, or lower the sizes in the configuration."),
    ERROR(UNSUPPORTED, "The operation is not supported here.",
          "The causes name what it lacks; weft-info shows what each transport supports and why one "
          "is missing."),
    ERROR(NOT_FOUND, "The named object does not exist.", ""),
    ERROR(BUSY, "The object is in use.",
          "Close what uses it first, wait for the earlier call to complete, or call from outside "
          "the callback."),
    ERROR(CANCELLED, "The operation was cancelled, on this side or by the peer.", ""),
    ERROR(TIMED_OUT, "The deadline passed before the operation was done.",
          "Allow more time, or check that the peer makes progress."),
    ERROR(CLOSED, "The object was closed on this side.",
          "Do not use a handle after its close was requested."),
    ERROR(PEER_CLOSED, "The peer closed the endpoint.", "Connect again if there is more to send."),
    ERROR(PEER_FAILED, "The peer died, or its connection broke.",
          "Check the peer's log, then connect again; make a new team of the members that are "
          "left."),
    ERROR(
        UNREACHABLE, "No transport reaches that address.",
        "Compare the transports of both sides with weft-info; the causes give the reason of each."),
    ERROR(REFUSED, "No listener is open at that address.",
          "Start the listener first, and compare host and port."),
    ERROR(REJECTED, "The receiving program refused the connection or the message.",
          "The receiver's log and its handlers or on_request give the reason."),
    ERROR(PROTOCOL, "The peer violated the wire protocol.",
          "Another program may be using this port; the log shows what was received."),
    ERROR(VERSION, "The peer uses another version of the wire protocol.",
          "Run the same version on both sides."),
    ERROR(TRUNCATED, "The message, address or key is longer than its buffer.",
          "Pass a larger buffer. weft_tag_probe returns the length of a message; the length that "
          "came back is that of an address, a key or an invitation."),
    ERROR(TOO_BIG, "The size exceeds a limit.",
          "weft-info lists the limits; some of them are settings."),
    ERROR(QUOTA, "The peer exceeded its quota.",
          "Receive more often, or raise the setting that limits it (tag.unexpected_bytes, "
          "stream.window, "
          "rma.max_served, shm.max_grants)."),
    ERROR(AUTH, "A peer could not prove that it holds the key, or the key file cannot be used.",
          "Both sides need the same key file (tcp.key_file), which only its user may read. The "
          "default one differs between users."),
    ERROR(INSECURE, "Binding there is refused, because others could connect.",
          "Beyond this machine: set tcp.key_file, or tcp.insecure = yes (for RDMA: rdma.insecure = "
          "yes). For shm: use a directory of this user alone."),
    ERROR(FORKED, "The object belongs to the parent of this forked process.",
          "Create a context and a worker of its own in the child."),
    ERROR(
        WRONG_THREAD, "The call came from a thread that does not own the worker.",
        "Use weft_worker_post. With WEFT_THREAD_MULTIPLE other threads may submit operations, but "
        "for collectives. Stop a worker's own thread before weft_worker_close."),
    ERROR(IO, "A system call failed.", "The causes and the log name the call and its error."),
    ERROR(NO_FDS, "The process has no more file descriptors.", "Raise the limit (ulimit -n)."),
    ERROR(ADDRESS, "The bytes or the text are no address or key that this version can read.",
          "Write scheme://host:port, or pass the bytes of weft_worker_address or weft_mem_pack "
          "unchanged."),
    ERROR(REVOKED, "The key to remote memory, or the team, was revoked.",
          "Request a new key from its owner; make a new team of the members that are left."),
    ERROR(INTERNAL, "The library reached a state that must be unreachable.",
          "This is a defect. Please report it with the trace in the log."),
    ERROR(EXISTS, "The name, address or payload is already taken.",
          "Choose another address, or close the object that uses it."),
    ERROR(NOT_ASSOCIATED, "The object was created in associated mode and has no resource yet.",
          "Call weft_associate_resources for it first."),
    ERROR(ALREADY_ASSOCIATED, "The object is associated with a resource already.",
          "Call weft_disassociate_resources first, or use the association that exists."),
    ERROR(DISASSOCIATED, "The object's resource was given back to its provider.",
          "Associate another resource with the object to resume."),
    ERROR(RESOURCE_LOST, "The provider of the object's resource ended first.",
          "Associate another resource with the object to resume."),
    ERROR(NOT_SHAREABLE, "The resource cannot be used by this object.",
          "The causes name the reason. Associate on the thread that owns it, describe it with "
          "WEFT_SHARE_PART, or wait until its user has returned it."),
    ERROR(VERSION_MISMATCH, "The provider of the resource was built against another version.",
          "Build both libraries against one version of Weft, or leave build_id empty."),
    ERROR(LEASE_EXHAUSTED, "No free range of message ids or tags is left to lease.",
          "Disassociate another user of the worker, or describe it with a larger range."),
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

/* ENOSPC is the end of a limit on memory, wherever we may meet it: of a memfd's pages, or of
 * what epoll keeps for its fds. */
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

weft_status_t weft__file_status(int error) {
    bool lacks = error == EMFILE || error == ENFILE || error == ENOMEM;
    return lacks ? weft__errno_status(error) : WEFT_ERR_IO;
}

/* ---- causes: a fixed piece of memory for each thread, innermost first ------------------------ */

#define causes (weft__per_thread_get()->causes)

/* A full list keeps the innermost causes, which hold the reason, and replaces the last. */
static void note_cause(const char *format, va_list args) {
    unsigned at = causes.n < MOST_CAUSES ? causes.n++ : MOST_CAUSES - 1;
    vsnprintf(causes.text[at], CAUSE_SIZE, format, args);
}

weft_status_t weft__fail(weft_status_t status, const char *format, ...) {
    va_list args;
    causes.status = status;
    causes.n = 0;
    va_start(args, format);
    note_cause(format, args);
    va_end(args);
    return status;
}

weft_status_t weft__fail_in(weft_status_t status, const char *format, ...) {
    va_list args;
    if (causes.status != status) causes.n = 0;
    causes.status = status;
    va_start(args, format);
    note_cause(format, args);
    va_end(args);
    return status;
}

weft_status_t weft__fail_null(const char *name, size_t len) {
    return weft__fail(WEFT_ERR_INVALID_PARAM, "%s is NULL, but %zu bytes or elements are named",
                      name, len);
}

weft_status_t weft__fail_rank(const char *name, uint32_t rank, uint32_t size) {
    return weft__fail(WEFT_ERR_INVALID_PARAM, "%s is %u, not below the team's size, %u", name, rank,
                      size);
}

weft_status_t weft__fail_op(const weft_op_t *op, uint32_t flags) {
    if (op->reserved[0]) return weft__fail(WEFT_ERR_INVALID_PARAM, "op->reserved is not zero");
    if (op->stream)
        return weft__fail(WEFT_ERR_UNSUPPORTED, "op->stream is set, and this operation takes none");
    return weft__fail(WEFT_ERR_INVALID_PARAM,
                      "op->flags has flags that this operation does not know: %#x",
                      op->flags & ~flags);
}

weft_status_t weft__fail_layout(void) {
    return weft__fail(WEFT_ERR_UNSUPPORTED,
                      "op->layout is set, and this operation moves no bytes of the program");
}

weft_status_t weft__check_plain_op(const weft_op_t *op, uint32_t flags) {
    if (op && op->completion)
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "op->completion is set, and this operation reports by op->done alone");
    weft_status_t st = weft__check_op(op, flags);
    return st < 0 ? st : weft__check_no_layout(op);
}

weft_status_t weft__check_close(const weft_op_t *op, bool bounded) {
    if (op && op->deadline_ms && !bounded)
        return weft__fail(
            WEFT_ERR_UNSUPPORTED,
            "op->deadline_ms is set; the setting close.timeout bounds this close instead");
    return weft__check_plain_op(op, 0);
}

void weft__causes_clear(void) {
    causes.n = 0;
}

bool weft__causes_line(weft_status_t status, char *buf, size_t size) {
    size_t used = 0;
    if (size) *buf = 0;
    for (unsigned i = causes.n; causes.status == status && i-- > 0 && used < size;)
        used += (size_t)snprintf(buf + used, size - used, "%s%s", causes.text[i], i ? ": " : "");
    return used > 0;
}

/* A buffer that may be too short, and what it would have needed. */
struct out {
    char *buf;
    size_t size, len;
};

static void put_cause(struct out *out, const char *text) {
    for (; *text; text++, out->len++)
        if (out->len + 1 < out->size) out->buf[out->len] = *text;
}

static size_t describe_cause(weft_status_t status, const char *because, const char *hint, char *buf,
                             size_t size) {
    struct out out = {buf, size, 0};
    const struct status_text *text = text_of(status);
    put_cause(&out, text->name);
    put_cause(&out, ": ");
    put_cause(&out, text->sentence);
    for (unsigned i = causes.n; causes.status == status && i-- > 0;) {
        put_cause(&out, because);
        put_cause(&out, causes.text[i]);
    }
    if (*text->hint) {
        put_cause(&out, hint);
        put_cause(&out, text->hint);
    }
    if (size) buf[out.len < size ? out.len : size - 1] = 0;
    return out.len;
}

size_t weft_status_describe(weft_status_t status, char *buf, size_t size) {
    return describe_cause(status, "\n  because: ", "\n  hint: ", buf, size);
}

void weft__status_line(weft_status_t status, char line[STATUS_LINE]) {
    describe_cause(status, " - because: ", " - hint: ", line, STATUS_LINE);
}
