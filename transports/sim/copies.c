/*
 * Copies between the memory of both ends of a lane: reads of exposed memory, and copies that reader
 * and sender split. Each side copies a slice at a time, and time passes between two slices, so that
 * all that ends a copy half way happens here too. The rules are those of shared memory
 * (transports/shm/rma): the reader takes bytes from the beginning and the sender from the end,
 * until they meet; what a side has taken it also copies; a read whose owner ended is no success.
 */
#include "local.h"
#include <base/compiler.h>
#include <string.h>
#include <transports/iov.h>
#include <weft/memory.h>

/* ---- time ------------------------------------------------------------------------------------ */

/* Out of memory for a timer, the next slice comes in the next turn. */
static void next_slice(struct sim_lane *lane) {
    struct reactor *r = lane->lane.iface->reactor;
    uint64_t ns = 1 + lane->fabric->profile.latency_ns / 8;
    if (!lane->copies && !lane->puts) return weft__timer_stop(r, &lane->copying);
    if (weft__timer_running(&lane->copying)) return;
    if (weft__timer_start(r, &lane->copying, weft__now(r) + ns) < 0)
        weft__job_post(r, &lane->copy_job);
}

/* How many of the bytes [at, end) come next. The owner may end the copy from here. */
static size_t slice(struct sim_lane *lane, const struct completion *completion, size_t at,
                    size_t end) {
    struct sim_fabric *f = lane->fabric;
    struct sim_slice what = {.completion = completion, .at = at, .end = end};
    size_t n = f->on_slice ? f->on_slice(f->slice_arg, &lane->lane, &what) : 0;
    return n == 0 ? SIM_SLICE : n;
}

/* ---- the reader ------------------------------------------------------------------------------ */

static struct sim_copy *copy_new(struct sim_lane *lane, const struct sim_copy *what) {
    struct sim_copy *c = weft__new(lane->lane.iface, struct sim_copy);
    if (!c) return NULL;
    *c = *what;
    c->lane = lane;
    c->serial = ++lane->fabric->n_copies;
    return c;
}

static void sim_copy_enter(struct sim_copy **at, struct sim_copy *c) {
    while (*at) at = &(*at)->next;
    *at = c;
    c->next = NULL;
}

static struct sim_copy *sim_copy_take(struct sim_copy **at, const struct sim_copy *c) {
    while (*at && *at != c) at = &(*at)->next;
    struct sim_copy *mine = *at;
    if (mine) *at = mine->next;
    return mine;
}

/* The owner of the memory that was read may have ended, and its program may have written there. */
static bool offers_stand(const struct sim_lane *lane) {
    const struct sim_lane *other = weft__sim_lane(lane->fabric, lane->remote);
    return other && !other->ended;
}

static weft_status_t judged(const struct sim_lane *lane, bool reads, weft_status_t status) {
    if (status != WEFT_OK || !reads || offers_stand(lane)) return status;
    return weft__fail(WEFT_ERR_PEER_FAILED, "sim: the peer ended while its memory was read");
}

/* It is in no list any more. */
static void copy_over(struct sim_copy *c, weft_status_t status) {
    struct sim_lane *lane = c->lane;
    struct completion *completion = c->completion;
    status = judged(lane, c->remote != 0, status);
    talloc_free(c);
    if (pending_queue_waits(&lane->pending))
        weft__job_post(lane->lane.iface->reactor, &lane->job); /* a flush may wait for it */
    completion_step(completion, status);
}

static void scatter(const struct sim_copy *c, size_t at, const char *from, size_t n) {
    size_t begin = 0;
    for (unsigned i = 0; i < c->n_iov; begin += c->iov[i++].len) {
        size_t lo = at > begin ? at : begin, hi = begin + c->iov[i].len;
        if (hi > at + n) hi = at + n;
        if (lo < hi) memcpy((char *)c->iov[i].base + (lo - begin), from + (lo - at), hi - lo);
    }
}

/* True: the peer has no byte to write any more. */
static bool stop_copy(struct sim_copy *c, weft_status_t status) {
    c->status = status;
    c->stopped = true;
    return c->written >= c->back;
}

/* This side takes no more. What the peer has taken is waited for. */
static void reader_ends(struct sim_lane *lane, struct sim_copy *c, weft_status_t status) {
    sim_copy_take(&lane->copies, c);
    if (stop_copy(c, status))
        copy_over(c, status);
    else
        sim_copy_enter(&sim_iface(lane)->outstanding, c);
}

static void read_slice(struct sim_lane *lane) {
    struct sim_copy *c = lane->copies;
    uint64_t serial = c->serial;
    if (c->status < 0) return reader_ends(lane, c, c->status);
    size_t n = slice(lane, c->completion, c->front, c->len);
    if (lane->copies != c || c->serial != serial) return;
    size_t room = c->len - c->front - c->back;
    if (n > room) n = room;
    const char *from = weft__sim_mapped_at(lane, c->remote + c->front, n, WEFT_MEM_READ);
    if (n && !from) return reader_ends(lane, c, WEFT_ERR_UNSUPPORTED);
    if (n) scatter(c, c->front, from, n);
    c->front += n;
    if (c->front + c->back == c->len) reader_ends(lane, c, WEFT_OK);
}

static struct sim_copy copy_of(uint64_t remote, const weft_iov_t *iov, size_t n_iov,
                               struct completion *completion) {
    struct sim_copy c = {.remote = remote, .completion = completion};
    for (size_t i = 0; i < n_iov; i++) {
        if (iov[i].len) c.iov[c.n_iov++] = iov[i];
        c.len += iov[i].len;
    }
    return c;
}

static weft_status_t copy_begin(struct sim_lane *lane, const struct sim_copy *what,
                                struct sim_copy **list) {
    struct sim_copy *c = copy_new(lane, what);
    if (!c) return WEFT_ERR_NO_MEMORY;
    sim_copy_enter(list, c);
    next_slice(lane);
    return WEFT_IN_PROGRESS;
}

/* A small one is copied within the call. */
weft_status_t weft__sim_bulk_get(struct lane *l, uint64_t remote, const weft_iov_t *iov,
                                 size_t n_iov, struct completion *completion) {
    struct sim_lane *lane = (struct sim_lane *)l;
    if (n_iov > SIM_IOV)
        return weft__fail(WEFT_ERR_TOO_BIG, "bulk_get into %zu pieces over sim", n_iov);
    struct sim_copy c = copy_of(remote, iov, n_iov, completion);
    const char *from = weft__sim_mapped_at(lane, remote, c.len, WEFT_MEM_READ);
    if (!from) return WEFT_ERR_UNSUPPORTED;
    if (c.len > SIM_SLICE) return copy_begin(lane, &c, &lane->copies);
    scatter(&c, 0, from, c.len);
    return judged(lane, true, WEFT_OK);
}

static uint64_t token_new(struct sim_iface *iface) {
    if (++iface->n_tokens == 0) iface->n_tokens = 1;
    return (uint64_t)iface->incarnation << 32 | iface->n_tokens;
}

weft_status_t weft__sim_bulk_split(struct lane *l, uint64_t remote, const weft_iov_t *to,
                                   struct completion *completion, uint64_t *token_p) {
    struct sim_lane *lane = (struct sim_lane *)l;
    struct sim_copy c = copy_of(remote, to, 1, completion);
    if (!weft__sim_mapped_at(lane, remote, to->len, WEFT_MEM_READ)) return WEFT_ERR_UNSUPPORTED;
    c.token = token_new(sim_iface(lane));
    weft_status_t st = copy_begin(lane, &c, &lane->copies);
    *token_p = c.token;
    return st;
}

weft_status_t weft__sim_bulk_put(struct lane *l, const weft_iov_t *to,
                                 struct completion *completion, uint64_t *token_p) {
    struct sim_lane *lane = (struct sim_lane *)l;
    struct sim_copy c = copy_of(0, to, 1, completion);
    c.token = token_new(sim_iface(lane));
    c.stopped = true;
    weft_status_t st = copy_begin(lane, &c, &sim_iface(lane)->outstanding);
    *token_p = c.token;
    return st;
}

/* Has the peer written all that this side leaves to it? */
static bool is_whole(const struct sim_copy *c) {
    size_t theirs = c->remote || c->over ? c->back : c->len;
    return c->stopped && c->written >= theirs;
}

void weft__sim_put_done(struct iface *i) {
    struct sim_copy **list = &((struct sim_iface *)i)->outstanding, *c;
    do {
        c = *list;
        while (c && !is_whole(c)) c = c->next;
        if (c) copy_over(sim_copy_take(list, c), c->status);
    } while (c);
}

/* The completion steps in a later turn, with the lane's copies. */
void weft__sim_put_stop(struct iface *i, const struct completion *completion) {
    struct sim_iface *iface = (struct sim_iface *)i;
    struct sim_copy *c = iface->outstanding;
    while (c && c->completion != completion) c = c->next;
    if (!c || c->remote || c->status < 0) return;
    c->over = true; /* the peer takes no more */
    if (!stop_copy(c, WEFT_ERR_CANCELLED)) return;
    sim_copy_take(&iface->outstanding, c);
    c->next = c->lane->copies;
    c->lane->copies = c;
    next_slice(c->lane);
}

/* ---- the sender ------------------------------------------------------------------------------ */

/* The reader's side of it, or NULL: it is over. */
static struct sim_copy *of_token(const struct sim_lane *lane, uint64_t token) {
    const struct sim_iface *iface = lane->fabric->node[lane->remote_node];
    if (!iface || iface->incarnation != token >> 32) return NULL;
    const struct sim_lane *reader = weft__sim_lane(lane->fabric, lane->remote);
    struct sim_copy *c = reader ? reader->copies : NULL;
    while (c && c->token != token) c = c->next;
    if (c) return c;
    for (c = iface->outstanding; c && c->token != token;) c = c->next;
    return c;
}

weft_status_t weft__sim_bulk_put_req(struct lane *l, const struct lane_put_req *from,
                                     struct completion *completion) {
    struct sim_lane *lane = (struct sim_lane *)l;
    if (from->token >> 32 != lane->remote_incarnation)
        return weft__fail(WEFT_ERR_PROTOCOL, "sim: the peer's request for a copy is malformed");
    struct sim_put *put = weft__new(l->iface, struct sim_put);
    if (!put) return WEFT_ERR_NO_MEMORY;
    *put = (struct sim_put){.from = *from, .completion = completion};
    struct sim_put **at = &lane->puts;
    while (*at) at = &(*at)->next;
    *at = put;
    next_slice(lane);
    return WEFT_IN_PROGRESS;
}

static void put_over(struct sim_lane *lane, struct sim_put *put, weft_status_t status) {
    struct sim_put **at = &lane->puts;
    struct completion *completion = put->completion;
    while (*at != put) at = &(*at)->next;
    *at = put->next;
    talloc_free(put);
    completion_step(completion, status);
}

/* Writes what it has taken. True: that was the last, and the reader waits for it. */
static bool write_taken(struct sim_lane *lane, struct sim_put *put) {
    struct sim_copy *c = of_token(lane, put->from.token);
    size_t n = put->taken;
    put->taken = 0;
    if (n == 0) return false;
    weft__iov_gather((char *)(uintptr_t)put->from.remote + put->at, put->from.iov, put->from.n_iov,
                     put->at, n);
    weft__count(lane->lane.iface->reactor)->shm_put_done += n;
    if (!c) return false;
    c->written += n;
    return is_whole(c);
}

/* Takes a slice now, and writes it when the next one is due: the reader may act in between. */
static void write_slice(struct sim_lane *lane) {
    struct sim_put *put = lane->puts;
    if (put->taken) {
        if (write_taken(lane, put)) put_over(lane, put, WEFT_OK);
        return;
    }
    struct sim_copy *c = of_token(lane, put->from.token);
    uint64_t token = put->from.token;
    size_t n = c ? slice(lane, put->completion, c->back, put->from.len) : 0;
    if (lane->puts != put || put->from.token != token) return;
    c = of_token(lane, token);
    bool maps = sim_is_up(lane) &&
                weft__sim_mapped_at(lane, put->from.remote, put->from.len, WEFT_MEM_WRITE);
    size_t room =
        c && maps && !c->over && c->len == put->from.len ? c->len - c->front - c->back : 0;
    if (c && c->remote && c->stopped) room = 0;
    /* its last slice may have been written because the mapping went */
    if (room == 0) return put_over(lane, put, c && is_whole(c) ? WEFT_OK : WEFT_ERR_CANCELLED);
    put->taken = n < room ? n : room;
    c->back += put->taken;
    put->at = put->from.len - c->back;
}

void weft__sim_write_taken(struct sim_lane *lane) {
    if (lane->puts) (void)write_taken(lane, lane->puts);
}

void weft__sim_put_req_stop(struct lane *l, const struct completion *completion) {
    struct sim_lane *lane = (struct sim_lane *)l;
    struct sim_put *put = lane->puts;
    while (put->completion != completion) put = put->next;
    put_over(lane, put, write_taken(lane, put) ? WEFT_OK : WEFT_ERR_CANCELLED);
}

/* ---- of the lane ----------------------------------------------------------------------------- */

static void copy_on(struct sim_lane *lane) {
    if (lane->copies && !lane->ended) read_slice(lane);
    if (lane->puts && !lane->ended) write_slice(lane);
    if (!lane->ended) next_slice(lane);
}

void weft__sim_copying(struct timer *timer) {
    copy_on(container_of(timer, struct sim_lane, copying));
}

void weft__sim_copy_job(struct job *job) {
    copy_on(container_of(job, struct sim_lane, copy_job));
}

/* A flush waits for reads, and not for copies that the peer makes alone. */
bool weft__sim_reads(const struct sim_lane *lane) {
    const struct sim_copy *c = lane->copies;
    if (c) return true;
    for (c = sim_iface(lane)->outstanding; c; c = c->next)
        if (c->lane == lane && c->remote) return true;
    return false;
}

static struct sim_copy *one_of(struct sim_copy *c, const struct sim_lane *lane) {
    while (c && c->lane != lane) c = c->next;
    return c;
}

/* Within a turn. The program has its memory from now on: what the peer has taken comes before. */
void weft__sim_copies_end(struct sim_lane *lane, weft_status_t status) {
    struct reactor *r = lane->lane.iface->reactor;
    struct sim_copy **outstanding = &sim_iface(lane)->outstanding, *c;
    struct sim_lane *peer = weft__sim_lane(lane->fabric, lane->remote);
    if (peer) weft__sim_write_taken(peer);
    lane->copies_due = false;
    weft__timer_stop(r, &lane->copying);
    weft__job_drop(r, &lane->copy_job);
    while (lane->puts) put_over(lane, lane->puts, WEFT_ERR_CLOSED);
    while ((c = one_of(*outstanding, lane)) != NULL)
        copy_over(sim_copy_take(outstanding, c), status);
    while ((c = lane->copies) != NULL) copy_over(sim_copy_take(&lane->copies, c), status);
}
