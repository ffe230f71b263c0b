/* Reads the peer's memory in one copy: from a mapping, or by the kernel where that is permitted
 * and faster. */
#include "key.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <transports/copy.h>
#include <transports/vm_speed.h>

enum { PIECE = 256 * 1024 }; /* bytes copied in one turn, so that a turn stays short */

/* ---- does it pay? ---------------------------------------------------------------------------- */

/* The two copies through staging run on two cores at once. So the kernel's copy may cost little
 * more than one of them. */
bool weft__shm_vm_pays(const char *way) {
    if (strcmp(way, "vm") == 0) return true;
    if (strcmp(way, "auto") != 0) return false;
    struct vm_speed speed = weft__vm_speed();
    return speed.read_ns && speed.read_ns < speed.copy_ns + speed.copy_ns / 2;
}

/* ---- the reads ------------------------------------------------------------------------------- */

static struct shm_bulk bulk_to(uint64_t remote, const weft_iov_t *iov, size_t n_iov,
                               struct completion *completion) {
    struct shm_bulk b = {.remote = remote, .completion = completion};
    for (size_t i = 0; i < n_iov; i++) {
        if (iov[i].len) b.iov[b.n_iov++] = iov[i];
        b.left += iov[i].len;
    }
    return b;
}

static void got(struct shm_bulk *b, size_t n) {
    b->remote += n;
    b->left -= n;
    while (n > 0) {
        size_t step = n < b->iov[0].len ? n : b->iov[0].len;
        b->iov[0].base = (uint8_t *)b->iov[0].base + step;
        b->iov[0].len -= step;
        n -= step;
        if (b->iov[0].len == 0) memmove(b->iov, b->iov + 1, --b->n_iov * sizeof *b->iov);
    }
}

/* ---- does the offer still stand? ------------------------------------------------------------- */

/*
 * An owner whose lane ends gives offered memory back to its program. A reader may be in the middle
 * of a copy then, and copy bytes that are no longer the message. So the owner first sets a word
 * that the peer sees. The reader loads the word after each copy, before it reports success. The
 * order is that of a sequence lock: the owner's fence stands between the word and its program's
 * stores, and the reader's fence between its copy and the load of the word.
 */
void weft__shm_offers_end(struct shm_lane *lane) {
    if (lane->by_mail)
        atomic_store_explicit(&lane->mail.ours->open, MAIL_ENDED, memory_order_relaxed);
    else if (lane->more && lane->more->ring.ours)
        atomic_store_explicit(&lane->more->ring.ours->ended, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

static bool offers_stand(const struct shm_lane *lane) {
    atomic_thread_fence(memory_order_acquire);
    if (lane->by_mail)
        return atomic_load_explicit(&lane->mail.tx.theirs->open, memory_order_relaxed) !=
               MAIL_ENDED;
    const struct shm_control *theirs = lane->more ? lane->more->ring.theirs : NULL;
    return theirs && atomic_load_explicit(&theirs->ended, memory_order_relaxed) == 0;
}

/* The status of a finished copy: a read fails if its offer has ended. Without `remote` it was no
 * read. */
static weft_status_t judged(const struct shm_lane *lane, const struct shm_bulk *b,
                            weft_status_t status) {
    if (status != WEFT_OK || !b->remote || offers_stand(lane)) return status;
    return weft__fail(WEFT_ERR_PEER_FAILED, "shm: the peer ended while its memory was read");
}

/* False: the memory is not mapped. */
static bool copy_piece(struct shm_lane *lane, struct shm_bulk *b) {
    size_t left = b->left < PIECE ? b->left : PIECE;
    const char *from = weft__shm_mapped_at(lane, b->remote, left, CAP_GET);
    if (!from) return false;
    for (size_t step; left > 0; left -= step, from += step) {
        step = left < b->iov[0].len ? left : b->iov[0].len;
        weft__copy(b->iov[0].base, from, step);
        got(b, step);
    }
    return true;
}

static weft_status_t read_piece(struct shm_lane *lane, struct shm_bulk *b) {
    struct iovec here[SHM_IOV], there = {(void *)(uintptr_t)b->remote, 0};
    unsigned n = 0;
    for (; n < b->n_iov && there.iov_len < PIECE; n++) {
        size_t len = b->iov[n].len;
        if (len > PIECE - there.iov_len) len = PIECE - there.iov_len;
        here[n] = (struct iovec){b->iov[n].base, len};
        there.iov_len += len;
    }
    ssize_t n_read = process_vm_readv(shm_pid(lane), here, n, &there, 1, 0);
    if (n_read == 0)
        return weft__fail(WEFT_ERR_IO, "shm: process_vm_readv: the peer's memory is not mapped");
    if (n_read < 0) {
        weft_status_t st = errno == ESRCH   ? WEFT_ERR_PEER_FAILED
                           : errno == EPERM ? WEFT_ERR_UNSUPPORTED
                                            : WEFT_ERR_IO;
        return weft__fail(st, "shm: process_vm_readv: %s", strerror(errno));
    }
    if (!weft__shm_peer_stays(lane)) return WEFT_ERR_PEER_FAILED;
    got(b, (size_t)n_read);
    return WEFT_OK;
}

static weft_status_t next_piece(struct shm_lane *lane, struct shm_bulk *b) {
    if (copy_piece(lane, b)) return WEFT_OK;
    return shm_iface(lane)->vm ? read_piece(lane, b) : WEFT_ERR_UNSUPPORTED;
}

/* A lane's extension, its bulk queues ready for use. NULL: no memory. */
struct shm_ext *weft__shm_bulk_ext(struct shm_lane *lane) {
    struct shm_ext *more = weft__shm_ext(lane);
    if (!more || more->bulk_last) return more;
    more->bulk_job.run = weft__shm_bulk_run;
    more->bulk_last = &more->bulk;
    more->put_req_job.run = weft__shm_put_req_run;
    more->put_req_last = &more->put_reqs;
    return more;
}

static struct shm_bulk *bulk_new(struct shm_lane *lane, const struct shm_bulk *what) {
    struct shm_bulk *b =
        weft__shm_bulk_ext(lane) ? weft__new(shm_iface(lane), struct shm_bulk) : NULL;
    if (b) *b = *what;
    return b;
}

weft_status_t weft__shm_bulk_add(struct shm_lane *lane, const struct shm_bulk *what) {
    struct shm_bulk *b = bulk_new(lane, what);
    if (!b) return WEFT_ERR_NO_MEMORY;
    *lane->more->bulk_last = b;
    lane->more->bulk_last = &b->next;
    weft__job_post(lane->lane.iface->reactor, &lane->more->bulk_job);
    return WEFT_IN_PROGRESS;
}

/* A small read of mapped memory is copied within the call. */
weft_status_t weft__shm_bulk_get(struct lane *l, uint64_t remote, const weft_iov_t *iov,
                                 size_t n_iov, struct completion *completion) {
    struct shm_lane *lane = (struct shm_lane *)l;
    if (n_iov > SHM_IOV)
        return weft__fail(WEFT_ERR_TOO_BIG, "bulk_get into %zu pieces over shm", n_iov);
    struct shm_bulk b = bulk_to(remote, iov, n_iov, completion);
    bool mapped = weft__shm_mapped_at(lane, remote, b.left, CAP_GET) != NULL;
    if (mapped && b.left <= PIECE && copy_piece(lane, &b)) return judged(lane, &b, WEFT_OK);
    if (!mapped && !(shm_iface(lane)->vm && weft__shm_vm_allowed(lane)))
        return WEFT_ERR_UNSUPPORTED;
    return weft__shm_bulk_add(lane, &b);
}

/* A send is complete when its call returns, so only reads can be under way. */
weft_status_t weft__shm_flush(struct lane *l, struct completion *completion) {
    struct shm_lane *lane = (struct shm_lane *)l;
    struct shm_ext *more = lane->more;
    if (!more || !(more->bulk || more->n_outstanding)) return WEFT_OK;
    return weft__shm_bulk_add(lane, &(struct shm_bulk){.completion = completion});
}

static struct shm_bulk *bulk_first(struct shm_ext *more) {
    struct shm_bulk *b = more->bulk;
    more->bulk = b->next;
    if (!more->bulk) more->bulk_last = &more->bulk;
    b->next = NULL;
    return b;
}

static void bulk_done(struct shm_lane *lane, struct shm_bulk *b, weft_status_t status) {
    struct completion *completion = b->completion;
    weft__shm_split_end(lane, b);
    talloc_free(b);
    if (completion) completion_step(completion, status);
}

static void bulk_over(struct shm_lane *lane, struct shm_bulk *b, weft_status_t status) {
    bulk_done(lane, b, judged(lane, b, status));
    if (pending_queue_waits(&lane->pending) && shm_is_up(lane)) shm_way(lane)->activate(lane);
}

/* IN_PROGRESS: more pieces are left; NO_RESOURCE: the peer still writes its pieces. */
static weft_status_t advance_bulk(struct shm_lane *lane, struct shm_bulk *b) {
    if (b->left == 0) return WEFT_OK;
    if (b->stopped) return b->status;
    if (b->split.words) return weft__shm_split_piece(lane, b);
    weft_status_t st = next_piece(lane, b);
    return st < 0 || b->left == 0 ? st : WEFT_IN_PROGRESS;
}

static void append(struct shm_bulk **at, struct shm_bulk *b) {
    while (*at) at = &(*at)->next;
    *at = b;
}

static void add_outstanding(struct shm_lane *lane, struct shm_bulk *b) {
    b->lane = lane;
    lane->more->n_outstanding++;
    append(&shm_iface(lane)->md->outstanding, b);
}

/* One piece in each turn. A flush also waits for the outstanding split reads. */
void weft__shm_bulk_run(struct job *job) {
    struct shm_ext *more = container_of(job, struct shm_ext, bulk_job);
    struct shm_bulk *b = more->bulk;
    if (!b || (b->left == 0 && more->n_outstanding)) return;
    weft_status_t st = advance_bulk(more->lane, b);
    if (st == WEFT_NO_RESOURCE)
        add_outstanding(more->lane, bulk_first(more));
    else if (st != WEFT_IN_PROGRESS)
        bulk_over(more->lane, bulk_first(more), st);
    if (more->bulk) weft__job_post(more->lane->lane.iface->reactor, job);
}

static struct shm_bulk *take_bulk(struct shm_bulk **at) {
    struct shm_bulk *b = *at;
    if (b) *at = b->next;
    return b;
}

/* Takes the first finished copy of a list. A peer writes in order: behind an unfinished one, its
 * others are skipped. */
static struct shm_bulk *came(struct shm_bulk **at) {
    const struct shm_lane *behind = NULL;
    for (; *at; at = &(*at)->next) {
        if ((*at)->lane == behind) continue;
        if (split_came(&(*at)->split)) break;
        behind = (*at)->lane;
    }
    return take_bulk(at);
}

static struct shm_bulk *one_of(struct shm_bulk **at, const struct shm_lane *lane) {
    while (*at && (*at)->lane != lane) at = &(*at)->next;
    return take_bulk(at);
}

void weft__shm_put_done(struct iface *i) {
    struct shm_iface *iface = (struct shm_iface *)i;
    struct shm_bulk *b;
    while ((b = came(&iface->md->outstanding)) != NULL) {
        struct shm_lane *lane = b->lane;
        lane->more->n_outstanding--;
        if (lane->more->bulk)
            weft__job_post(i->reactor, &lane->more->bulk_job); /* a flush may wait for this read */
        bulk_over(lane, b, b->status);
    }
    while ((b = came(&iface->md->puts)) != NULL) bulk_over(b->lane, b, b->status);
}

/* ---- copies that the peer writes alone: no flush waits for them ------------------------------ */

weft_status_t weft__shm_put_add(struct shm_lane *lane, const struct shm_bulk *what) {
    struct shm_bulk *b = bulk_new(lane, what);
    if (!b) return WEFT_ERR_NO_MEMORY;
    append(&shm_iface(lane)->md->puts, b);
    return WEFT_IN_PROGRESS;
}

/* Before all else, from its lane's next turn. */
static void end_soon(struct shm_bulk *b) {
    struct shm_ext *more = b->lane->more;
    b->stopped = true;
    b->next = more->bulk;
    if (!more->bulk) more->bulk_last = &b->next;
    more->bulk = b;
    weft__job_post(b->lane->lane.iface->reactor, &more->bulk_job);
}

/* While the lane is up, a piece that the peer writes is waited for. */
void weft__shm_put_stop(struct iface *iface, const struct completion *completion) {
    struct shm_bulk **at = &((struct shm_iface *)iface)->md->puts;
    while (*at && (*at)->completion != completion) at = &(*at)->next;
    if (!*at || (*at)->status < 0) return;
    (*at)->status = WEFT_ERR_CANCELLED;
    if (split_stop(&(*at)->split)) end_soon(take_bulk(at));
}

void weft__shm_bulk_end(struct shm_lane *lane, weft_status_t status) {
    struct shm_ext *more = lane->more;
    struct shm_bulk *b;
    if (!more) return;
    weft__shm_put_reqs_end(lane);
    weft__job_drop(lane->lane.iface->reactor, &more->bulk_job);
    for (; more->n_outstanding && (b = one_of(&shm_iface(lane)->md->outstanding, lane)) != NULL;
         more->n_outstanding--)
        bulk_done(lane, b, status);
    while ((b = one_of(&shm_iface(lane)->md->puts, lane)) != NULL) bulk_done(lane, b, status);
    while (more->bulk) bulk_done(lane, bulk_first(more), status);
}
