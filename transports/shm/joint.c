/* Large reads that are made jointly: the memory's owner writes the end of them into memory of the reader's, which it has mapped. */
#include "key.h"
#include <reactor/counters.h>
#include <stddef.h>
#include <transports/iov.h>

#define OF_HELP_JOB(j) ((struct shm_more *)((char *)(j)-offsetof(struct shm_more, help_job)))

/* What the reader tells the helper of it. */
static uint64_t token_of(unsigned index, uint32_t serial) {
    return (uint64_t)index << 32 | serial;
}

/* ---- the reader ------------------------------------------------------------------------------------------------------ */

static bool words_take(struct shm_iface *iface, size_t len, struct joint *joint, unsigned *index_p) {
    struct joint_board *board = weft__hall_board(&iface->place);
    if (!board || !~iface->joints) return false;
    *index_p = (unsigned)__builtin_ctzll(~iface->joints);
    if (++iface->joint_serial == 0) iface->joint_serial = 1;
    if (!joint_init(joint, &board->words[*index_p], iface->joint_serial, len)) return false;
    iface->joints |= UINT64_C(1) << *index_p;
    return true;
}

void weft__shm_joint_end(struct shm_lane *lane, const struct shm_bulk *b) {
    struct shm_iface *iface = shm_iface(lane);
    if (!b->joint.words) return;
    joint_end(&b->joint);
    iface->joints &= ~(UINT64_C(1) << (b->joint.words - weft__hall_board(&iface->place)->words));
}

weft_status_t weft__shm_bulk_joint(struct lane *l, uint64_t remote, const weft_iov_t *to,
                                   struct completion *completion, uint64_t *token_p) {
    struct shm_lane *lane = (struct shm_lane *)l;
    struct shm_bulk b = {.remote = remote, .left = to->len, .completion = completion, .n_iov = 1, .iov = {*to}};
    unsigned index;
    if (!weft__shm_mapped_at(lane, remote, to->len, CAP_GET) ||
        !words_take(shm_iface(lane), to->len, &b.joint, &index))
        return WEFT_ERR_UNSUPPORTED;
    weft_status_t st = weft__shm_bulk_add(lane, &b);
    if (st < 0)
        weft__shm_joint_end(lane, &b);
    else
        joint_begin(&b.joint);
    *token_p = token_of(index, b.joint.serial);
    return st;
}

weft_status_t weft__shm_bulk_put(struct lane *l, const weft_iov_t *to, struct completion *completion,
                                 uint64_t *token_p) {
    struct shm_lane *lane = (struct shm_lane *)l;
    struct shm_bulk b = {.left = to->len, .completion = completion, .lane = lane};
    unsigned index;
    if (!words_take(shm_iface(lane), to->len, &b.joint, &index)) return WEFT_ERR_UNSUPPORTED;
    joint_leave(&b.joint);
    weft_status_t st = weft__shm_put_add(lane, &b);
    if (st < 0) weft__shm_joint_end(lane, &b);
    *token_p = token_of(index, b.joint.serial);
    return st;
}

static weft_status_t met(struct shm_bulk *b, weft_status_t status) {
    b->status = status;
    return joint_stop(&b->joint) ? status : WEFT_NO_RESOURCE;
}

weft_status_t weft__shm_joint_piece(struct shm_lane *lane, struct shm_bulk *b) {
    int piece = joint_from_front(&b->joint);
    if (piece < 0) return met(b, WEFT_OK);
    size_t len, at = joint_at(&b->joint, piece, &len);
    const char *from = weft__shm_mapped_at(lane, b->remote + at, len, CAP_GET);
    if (!from) return met(b, WEFT_ERR_UNSUPPORTED);
    weft__copy((char *)b->iov->base + at, from, len);
    return WEFT_IN_PROGRESS;
}

/* ---- the helper ------------------------------------------------------------------------------------------------------- */

static struct joint_words *words_of(const struct shm_lane *lane, uint64_t token) {
    char *bells = shm_process(lane)->bells->segment.at;
    size_t place = (size_t)(shm_bell(lane) - (struct doorbell *)(void *)bells);
    struct joint_board *boards = (struct joint_board *)(void *)(bells + HALL_BOARDS_AT);
    return token >> 32 < JOINT_WORDS && (uint32_t)token ? &boards[place].words[token >> 32] : NULL;
}

weft_status_t weft__shm_bulk_help(struct lane *l, uint64_t token, const weft_iov_t *iov, size_t n_iov,
                                  uint64_t remote, size_t len, struct completion *completion) {
    struct shm_lane *lane = (struct shm_lane *)l;
    struct joint_words *words = words_of(lane, token);
    struct shm_help what = {.iov = iov, .n_iov = n_iov, .remote = remote, .completion = completion};
    if (!words || !joint_init(&what.joint, words, (uint32_t)token, len))
        return weft__fail(WEFT_ERR_PROTOCOL, "shm: no joint copy is like that");
    struct shm_more *more = weft__shm_more(lane);
    struct shm_help *help = more ? weft__new(shm_iface(lane), struct shm_help) : NULL;
    if (!help) return WEFT_ERR_NO_MEMORY;
    *help = what;
    *more->help_last = help;
    more->help_last = &help->next;
    weft__job_post(lane->lane.iface->reactor, &more->help_job);
    return WEFT_IN_PROGRESS;
}

static void help_over(struct shm_more *more, struct shm_help **at, weft_status_t status) {
    struct shm_help *help = *at;
    struct completion *completion = help->completion;
    *at = help->next;
    if (!*at) more->help_last = at;
    talloc_free(help);
    completion_step(completion, status);
}

void weft__shm_help_stop(struct lane *l, const struct completion *completion) {
    struct shm_more *more = ((struct shm_lane *)l)->more;
    struct shm_help **at = &more->helps;
    while ((*at)->completion != completion) at = &(*at)->next;
    help_over(more, at, WEFT_ERR_CANCELLED);
}

/* True: the reader waits for it. */
static bool write_piece(struct shm_lane *lane, struct shm_help *help, char *to, int piece) {
    size_t len, at = joint_at(&help->joint, piece, &len);
    weft__iov_gather(to + at, help->iov, help->n_iov, at, len);
    shm_iface(lane)->count->shm_helped += len;
    return joint_wrote(&help->joint);
}

/* A piece a turn. Nothing is taken of what cannot be written to, or by a lane that is about to end. */
void weft__shm_help_run(struct job *job) {
    struct shm_more *more = OF_HELP_JOB(job);
    struct shm_lane *lane = more->lane;
    struct shm_help *help = more->helps;
    if (!help) return;
    char *to = shm_is_up(lane) ? weft__shm_mapped_at(lane, help->remote, help->joint.len, CAP_PUT) : NULL;
    int piece = to ? joint_from_back(&help->joint) : JOINT_OVER;
    if (piece == JOINT_OVER)
        help_over(more, &more->helps, WEFT_ERR_CANCELLED);
    else if (piece >= 0 && write_piece(lane, help, to, piece))
        help_over(more, &more->helps, WEFT_OK);
    if (more->helps) weft__job_post(lane->lane.iface->reactor, job);
}

void weft__shm_helps_end(struct shm_lane *lane) {
    weft__job_drop(lane->lane.iface->reactor, &lane->more->help_job);
    while (lane->more->helps) help_over(lane->more, &lane->more->helps, WEFT_ERR_CLOSED);
}
