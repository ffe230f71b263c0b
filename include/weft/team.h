/* Teams: a group of workers, numbered, that act together. */
#ifndef WEFT_TEAM_H
#define WEFT_TEAM_H

#include <weft/worker.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_team weft_team_t;

/*
 * A way to give every member everybody's bytes before any connection exists. `allgather` starts to collect
 * `len` bytes from each rank into `all` (size × len bytes, in rank order, len equal everywhere) and calls
 * `done` once on the worker's thread, within the call or later. Calls come one at a time, in the same order
 * everywhere. `cancel` (may be NULL) ends one that has not finished: its `done` must not be called after.
 */
typedef struct weft_exchange {
    uint32_t rank, size;
    weft_status_t (*allgather)(void *arg, weft_worker_t *worker, const void *mine, size_t len, void *all,
                               weft_done_fn done, void *done_arg);
    void (*cancel)(void *arg);
    void *arg;
} weft_exchange_t;

typedef struct weft_team_params {
    const weft_exchange_t *exchange; /* copied; its arg must live until the team is ready or failed */
    void (*on_ready)(weft_team_t *team, weft_status_t status, void *arg); /* once: OK, or why not */
    void *arg;
    uint32_t deadline_ms;    /* for the creation; 0: the setting "team.timeout" */
    uint32_t ranks_per_core; /* 0: worked out from the members' hosts and cores */
} weft_team_params_t;

/*
 * Creates a team without blocking: WEFT_OK with the handle, then on_ready. After a failed creation the handle still needs
 * weft_team_close. on_ready is told OK; TIMED_OUT; INVALID_PARAM: the members' settings "coll.…" differ; UNSUPPORTED: two members
 * are one worker; PROTOCOL: the exchange brought something else; what the exchange ended with; or why a member is not reached.
 */
#define weft_team_create(...) weft_team_create_sized(sizeof(weft_team_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_team_create_sized(size_t params_size, weft_worker_t *worker,
                                              const weft_team_params_t *params, weft_team_t **team_p);

WEFT_API uint32_t weft_team_rank(const weft_team_t *team);
WEFT_API uint32_t weft_team_size(const weft_team_t *team);

/* This side's endpoint to a member; opened with the team. NULL for a rank that is not there. Each side opens its own, so what a
 * member sends by its own comes over another endpoint here (a handler's, weft_tag_info_t.ep): answer by that, and look for
 * the rank in what was sent. */
WEFT_API weft_ep_t *weft_team_ep(weft_team_t *team, uint32_t rank);

/* Local: members may close at different times. Collectives in progress end as WEFT_ERR_CLOSED. WEFT_IN_PROGRESS, and the
 * handle is gone when `op->done` begins, or BUSY when it is closing already. */
WEFT_API weft_status_t weft_team_close(weft_team_t *team, const weft_op_t *op);

WEFT_API weft_status_t weft_team_create_wait(weft_worker_t *worker, const weft_exchange_t *exchange,
                                             weft_team_t **team_p);
WEFT_API weft_status_t weft_team_close_wait(weft_team_t *team);

#ifdef __cplusplus
}
#endif
#endif
