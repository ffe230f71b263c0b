/* Split copies: the owner writes the end of a large read into the reader's memory, which it has
 * mapped. */
#include <base/counters.h>
#include <transports/iov.h>
#include <transports/shm/rma/key.h>

/* The token leads the helper to the words of the copy. */
static uint64_t token_of(unsigned index, uint32_t serial) {
    return (uint64_t)index << 32 | serial;
}

/* ---- the reader ------------------------------------------------------------------------------ */

static bool words_take(struct shm_iface *iface, size_t len, struct split *split,
                       unsigned *index_p) {
    struct split_copy_ctl *copy_ctl = weft__slot_table_copy_ctl(&iface->slot.place);
    if (!copy_ctl || !~iface->md->split_words) return false;
    *index_p = (unsigned)__builtin_ctzll(~iface->md->split_words);
    if (++iface->md->split_serial == 0) iface->md->split_serial = 1;
    if (!split_init(split, &copy_ctl->words[*index_p], iface->md->split_serial, len)) return false;
    iface->md->split_words |= UINT64_C(1) << *index_p;
    return true;
}

void weft__shm_split_end(struct shm_lane *lane, const struct shm_bulk *b) {
    struct shm_iface *iface = shm_iface(lane);
    if (!b->split.words) return;
    split_end(&b->split);
    iface->md->split_words &=
        ~(UINT64_C(1) << (b->split.words - weft__slot_table_copy_ctl(&iface->slot.place)->words));
}

weft_status_t weft__shm_bulk_split(struct lane *l, uint64_t remote, const weft_iov_t *to,
                                   struct completion *completion, uint64_t *token_p) {
    struct shm_lane *lane = (struct shm_lane *)l;
    struct shm_bulk b = {
        .remote = remote, .left = to->len, .completion = completion, .n_iov = 1, .iov = {*to}};
    unsigned index;
    if (!weft__shm_mapped_at(lane, remote, to->len, CAP_GET) ||
        !words_take(shm_iface(lane), to->len, &b.split, &index))
        return WEFT_ERR_UNSUPPORTED;
    weft_status_t st = weft__shm_bulk_add(lane, &b);
    if (st < 0)
        weft__shm_split_end(lane, &b);
    else
        split_begin(&b.split);
    *token_p = token_of(index, b.split.serial);
    return st;
}

weft_status_t weft__shm_bulk_put(struct lane *l, const weft_iov_t *to,
                                 struct completion *completion, uint64_t *token_p) {
    struct shm_lane *lane = (struct shm_lane *)l;
    struct shm_bulk b = {.left = to->len, .completion = completion, .lane = lane};
    unsigned index;
    if (!words_take(shm_iface(lane), to->len, &b.split, &index)) return WEFT_ERR_UNSUPPORTED;
    split_leave(&b.split);
    weft_status_t st = weft__shm_put_add(lane, &b);
    if (st < 0) weft__shm_split_end(lane, &b);
    *token_p = token_of(index, b.split.serial);
    return st;
}

static weft_status_t met(struct shm_bulk *b, weft_status_t status) {
    b->status = status;
    return split_stop(&b->split) ? status : WEFT_NO_RESOURCE;
}

weft_status_t weft__shm_split_piece(struct shm_lane *lane, struct shm_bulk *b) {
    int piece = split_from_front(&b->split);
    if (piece < 0) return met(b, WEFT_OK);
    size_t len, at = split_at(&b->split, piece, &len);
    const char *from = weft__shm_mapped_at(lane, b->remote + at, len, CAP_GET);
    if (!from) return met(b, WEFT_ERR_UNSUPPORTED);
    weft__copy((char *)b->iov->base + at, from, len);
    return WEFT_IN_PROGRESS;
}

/* ---- the helper ------------------------------------------------------------------------------ */

static struct split_words *words_of(const struct shm_lane *lane, uint64_t token) {
    char *doorbells = shm_process(lane)->doorbells->segment.at;
    size_t place = (size_t)(shm_doorbell(lane) - (struct doorbell *)(void *)doorbells);
    struct split_copy_ctl *copy_ctls =
        (struct split_copy_ctl *)(void *)(doorbells + SLOT_TABLE_COPY_CTLS_AT);
    return token >> 32 < SPLIT_WORDS && (uint32_t)token ? &copy_ctls[place].words[token >> 32]
                                                        : NULL;
}

weft_status_t weft__shm_bulk_put_req(struct lane *l, const struct lane_put_req *from,
                                     struct completion *completion) {
    struct shm_lane *lane = (struct shm_lane *)l;
    struct split_words *words = words_of(lane, from->token);
    struct shm_put_req what = {
        .iov = from->iov, .n_iov = from->n_iov, .remote = from->remote, .completion = completion};
    if (!words || !split_init(&what.split, words, (uint32_t)from->token, from->len))
        return weft__fail(WEFT_ERR_PROTOCOL,
                          "shm: the peer's request for a shared copy is malformed");
    struct shm_ext *more = weft__shm_bulk_ext(lane);
    struct shm_put_req *put_req = more ? weft__new(shm_iface(lane), struct shm_put_req) : NULL;
    if (!put_req) return WEFT_ERR_NO_MEMORY;
    *put_req = what;
    *more->put_req_last = put_req;
    more->put_req_last = &put_req->next;
    weft__job_post(lane->lane.iface->reactor, &more->put_req_job);
    return WEFT_IN_PROGRESS;
}

static void put_req_over(struct shm_ext *more, struct shm_put_req **at, weft_status_t status) {
    struct shm_put_req *put_req = *at;
    struct completion *completion = put_req->completion;
    *at = put_req->next;
    if (!*at) more->put_req_last = at;
    talloc_free(put_req);
    completion_step(completion, status);
}

void weft__shm_put_req_stop(struct lane *l, const struct completion *completion) {
    struct shm_ext *more = ((struct shm_lane *)l)->more;
    struct shm_put_req **at = &more->put_reqs;
    while ((*at)->completion != completion) at = &(*at)->next;
    put_req_over(more, at, WEFT_ERR_CANCELLED);
}

/* True: it was the last piece, and the reader waits for it. */
static bool write_piece(struct shm_lane *lane, struct shm_put_req *put_req, char *to, int piece) {
    size_t len, at = split_at(&put_req->split, piece, &len);
    weft__iov_gather(to + at, put_req->iov, put_req->n_iov, at, len);
    shm_iface(lane)->count->shm_put_done += len;
    return split_wrote(&put_req->split);
}

/* One piece in each turn. A lane that ends, or that cannot write there, takes no piece. */
void weft__shm_put_req_run(struct job *job) {
    struct shm_ext *more = container_of(job, struct shm_ext, put_req_job);
    struct shm_lane *lane = more->lane;
    struct shm_put_req *put_req = more->put_reqs;
    if (!put_req) return;
    char *to = shm_is_up(lane)
                   ? weft__shm_mapped_at(lane, put_req->remote, put_req->split.len, CAP_PUT)
                   : NULL;
    int piece = to ? split_from_back(&put_req->split) : SPLIT_OVER;
    if (piece == SPLIT_OVER)
        put_req_over(more, &more->put_reqs, WEFT_ERR_CANCELLED);
    else if (piece >= 0 && write_piece(lane, put_req, to, piece))
        put_req_over(more, &more->put_reqs, WEFT_OK);
    if (more->put_reqs) weft__job_post(lane->lane.iface->reactor, job);
}

void weft__shm_put_reqs_end(struct shm_lane *lane) {
    weft__job_drop(lane->lane.iface->reactor, &lane->more->put_req_job);
    while (lane->more->put_reqs) put_req_over(lane->more, &lane->more->put_reqs, WEFT_ERR_CLOSED);
}
