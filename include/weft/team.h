/* Teams: a numbered group of workers that perform collectives. */
#ifndef WEFT_TEAM_H
#define WEFT_TEAM_H

#include <stdbool.h>
#include <weft/worker.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_team weft_team_t;

/*
 * An out-of-band exchange: it gives each member the bytes of all members before any connection
 * exists.
 *
 * - allgather: starts to collect `len` bytes of each rank into `all` (size × len bytes in rank
 *   order; `len` is equal everywhere). Returns WEFT_OK, and calls `done` once on the worker's
 *   thread, within the call or later; after an error of the call it does not. `mine` and `all` are
 *   valid until `done`. Each creation of a team makes one call. So the program creates the teams of
 *   one exchange one after the other, in the same order on all ranks.
 * - cancel: optional; ends an unfinished allgather, whose `done` must not be called afterwards.
 */
typedef struct weft_exchange {
    uint32_t rank, size;
    weft_status_t (*allgather)(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                               void *all, weft_done_fn done, void *done_arg);
    void (*cancel)(void *arg);
    void *arg;
} weft_exchange_t;

/*
 * Returns the exchange of a team of one member, which sends nothing. It has no state: any worker
 * may use it, any number of times. Any thread.
 */
WEFT_API const weft_exchange_t *weft_self_exchange(void);

typedef struct weft_team_params {
    /* copied; its `arg` must live until the team is ready or has failed */
    const weft_exchange_t *exchange;
    /*
     * Called once, with the outcome. It alone brings the handle of a team that another one makes:
     * weft_team_split, and those below it that have parameters, refuse NULL (INVALID_PARAM). Of a
     * failure weft_status_describe has the causes within the call, also where there is no team.
     */
    void (*on_ready)(weft_team_t *team, weft_status_t status, void *arg);
    void *arg;
    uint32_t deadline_ms;    /* for the creation; 0: the setting team.timeout */
    uint32_t ranks_per_core; /* 0: computed from the members' hosts and cores */
    /*
     * Not 0: associated mode (weft/resource.h), for weft_team_create alone. `exchange` must be
     * NULL. Calls return NOT_ASSOCIATED until a resource is associated with the team, which makes
     * its exchange.
     */
    int associated;
    /* for each collective whose descriptor has none; 0: the setting coll.timeout */
    uint32_t collective_deadline_ms;
    /*
     * Choices of the team's own, as in the setting coll.algorithms, before those of the settings;
     * equal on all members. NULL: none. Borrowed until on_ready.
     */
    const char *algorithms;
    /*
     * Transports of the team's endpoints, by commas, of those that the worker has opened; NULL: all
     * of them. Without "shm" the team shares no memory. Borrowed until on_ready. The team may
     * use a connection that the worker has to a member already, if its transport is in the list. A
     * connection may move to a faster lane later, unless the setting lanes.cross_transport is off.
     */
    const char *transports;
} weft_team_params_t;

/*
 * Creates a team without blocking. Returns WEFT_OK and the handle; on_ready reports the outcome.
 * After a failed creation the handle must still be closed (weft_team_close).
 *
 * on_ready gets one of these statuses:
 * - OK, or TIMED_OUT (weft_team_info_t.why names members from which nothing came, or reports that
 *   the program's exchange does not name any);
 * - INVALID_PARAM if the members' coll.* settings, or the team's own `algorithms`, differ;
 * - UNSUPPORTED if two members are one worker;
 * - PROTOCOL if the exchange returned malformed bytes;
 * - NO_MEMORY, of this member or of another one;
 * - PEER_FAILED if a member cannot be reached, or was lost (weft_team_info_t.why has the reason);
 * - CLOSED if the team was closed before it was ready;
 * - the error that the exchange ended with.
 *
 * Errors of the call: INVALID_PARAM, for example for a rank that is not below the size; NO_MEMORY;
 * CLOSED if the worker is closing; what the exchange's allgather returns, such as BUSY of
 * weft_run_exchange while another team is being created over it.
 */
#define weft_team_create(...) weft_team_create_sized(sizeof(weft_team_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_team_create_sized(size_t params_size, weft_worker_t *worker,
                                              const weft_team_params_t *params,
                                              weft_team_t **team_p);

#define WEFT_NO_COLOUR UINT32_MAX /* of a member that joins no part */
/*
 * Makes a team of the members of `parent` that give the same colour, ranked by `key`, then by their
 * rank in the parent. Every member of the parent calls it, in the same order as its collectives. No
 * other exchange is needed: params->exchange must be NULL.
 *
 * Returns WEFT_OK; on_ready reports the outcome, and the handle. With the colour WEFT_NO_COLOUR its
 * `team` is NULL and its status OK. `team` is also NULL if the split failed before there was a
 * team. There is nothing to close then. The parent refuses collectives as BUSY until its part of
 * the split is over: wait for on_ready. After TIMED_OUT that part may go on for as long as a
 * collective of the parent may take. The parent may be closed in the meantime, which fails the
 * split: here at once, at the other members at the latest by params->deadline_ms. If this member
 * cannot begin a later collective of the split, for lack of memory, the parent fails with that
 * status: otherwise its next one would stand in that place.
 *
 * Errors of the call: INVALID_PARAM, NO_MEMORY, BUSY, or the status of the failed parent.
 */
#define weft_team_split(...) weft_team_split_sized(sizeof(weft_team_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_team_split_sized(size_t params_size, weft_team_t *parent,
                                             uint32_t colour, uint32_t key,
                                             const weft_team_params_t *params);

/*
 * Which members of a team a new one has. Every member of the parent gives the same map.
 * - FULL: all of them, with the same ranks;
 * - LIST: the ranks list[0], list[1], … become ranks 0, 1, … of the new team;
 * - STRIDED: start, start + stride, …: `n` of them;
 * - CALLBACK: those for which `contains` is true, in the parent's order; called for this rank only.
 */
typedef enum weft_map_kind {
    WEFT_MAP_LIST,
    WEFT_MAP_STRIDED,
    WEFT_MAP_CALLBACK,
    WEFT_MAP_FULL
} weft_map_kind_t;
typedef struct weft_team_map {
    weft_map_kind_t kind;
    const uint32_t *list; /* borrowed for the call */
    uint32_t start, stride, n;
    bool (*contains)(uint32_t rank, void *arg);
    void *arg;
} weft_team_map_t;

/*
 * Makes a team of the members that `map` names. The contract of weft_team_split holds, its errors
 * included. Members of the parent that are not in the map call it too, and get NULL. Errors: also
 * INVALID_PARAM for a rank that is out of range or named twice.
 */
#define weft_team_subset(...) weft_team_subset_sized(sizeof(weft_team_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_team_subset_sized(size_t params_size, weft_team_t *parent,
                                              const weft_team_map_t *map,
                                              const weft_team_params_t *params);

/*
 * Ends the team for all members. Collectives in progress end as REVOKED everywhere, and later ones
 * are refused with that status: here at once, at the others when they are notified. Any member may
 * call it, so that no member waits for one that has seen a failure. The handle must still be
 * closed. A team that has failed already stays as it is (WEFT_OK). Errors: BUSY before the team is
 * ready.
 */
WEFT_API weft_status_t weft_team_revoke(weft_team_t *team);

/*
 * Agrees among the members that are left, also in a team that has failed: a fault-tolerant
 * allreduce of one word. Members that are left have neither died nor closed the team. Each of them
 * calls it, in the same order. All members that get OK get the same *flags_p, the bitwise AND of
 * what those that are left gave. They also get the same members as lost. `lost` has a bit for each
 * rank: rank r is bit r % 64 of word r / 64, and there are (size + 63) / 64 words. It may be NULL.
 * Both are borrowed until completion.
 *
 * Further members may die during that; they may be among the lost or not. Between the coordinator
 * and each other member it takes four messages, and as many again for each coordinator that dies.
 * It ends as TIMED_OUT after op->deadline_ms, or else the team's deadline for collectives;
 * weft_status_describe names the members that have not answered this one. It ends as CLOSED by a
 * close of the team, and as PEER_FAILED if the others agreed that this member is lost.
 * `op->request_p` must be NULL; `op->completion` is UNSUPPORTED.
 *
 * Errors of the call: BUSY before the team is ready, or while an agreement, or a collective with
 * WEFT_COLL_SAFE, is in progress here; CLOSED if the team is closing.
 */
WEFT_API weft_status_t weft_team_agree(weft_team_t *team, uint64_t *flags_p, uint64_t *lost,
                                       const weft_op_t *op);

/*
 * Makes a team of the members that are left, in the order of their ranks, by two agreements. Every
 * member that is left calls it; the team may have failed or been revoked. No exchange is needed:
 * params->exchange must be NULL. The new team has an identity of its own, so late messages of the
 * old one do not reach it. `team` must still be closed, after on_ready.
 *
 * Returns WEFT_OK; on_ready reports the outcome, and the handle (NULL: there is none to close). If
 * a member dies during that, or can make no team, the new team may fail at all of them. When all
 * have their outcome, shrinking may be tried again.
 *
 * Errors of the call: INVALID_PARAM; NO_MEMORY; BUSY and CLOSED as of weft_team_agree.
 */
#define weft_team_shrink(...) weft_team_shrink_sized(sizeof(weft_team_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_team_shrink_sized(size_t params_size, weft_team_t *team,
                                              const weft_team_params_t *params);

/*
 * Writes an invitation: bytes with which a worker in any process joins the team at this member
 * (weft_team_join). The program carries them there. *len_p is the room in `buf`, then the length;
 * WEFT_TEAM_INVITATION_MAX is enough. An invitation serves any number of workers, as long as the
 * team is open here. Any holder may join: guard it as a capability.
 * Errors: BUSY before the team is ready, or while another team is being made of it; the status of a
 * failed team; TRUNCATED.
 */
enum { WEFT_TEAM_INVITATION_MAX = 272 };
WEFT_API weft_status_t weft_team_invite(weft_team_t *team, void *buf, size_t *len_p);

/*
 * Makes a team of the members of `team` and of `n` workers (1 to 4,096) that join by an invitation
 * of rank `inviter`. The members keep their ranks. The workers get the next ranks, in the order
 * in which they came there. Every member calls it, with equal arguments, in the same order as its
 * collectives. The workers may come before or after that. params->exchange must be NULL.
 *
 * Returns WEFT_OK; on_ready reports the outcome, and the handle (NULL: there is none to close).
 * `team` refuses collectives as BUSY meanwhile. It is usable afterwards, also if no worker came,
 * and must still be closed. The new team has an identity and an epoch of its own, so late messages
 * of the old one do not reach it. TIMED_OUT: not enough workers came by params->deadline_ms. Then
 * a member waits for the inviter's answer, too, at most as long as for a collective of `team`.
 * PEER_FAILED: one of them was lost, or gave up. `team` fails where the parent of a split does.
 * Errors of the call: those of weft_team_split.
 */
#define weft_team_grow(...) weft_team_grow_sized(sizeof(weft_team_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_team_grow_sized(size_t params_size, weft_team_t *team, uint32_t inviter,
                                            uint32_t n, const weft_team_params_t *params);

/*
 * Asks to join a team, with an invitation (copied). The worker waits until the team grows.
 *
 * Returns WEFT_OK; on_ready reports the outcome, and the handle (NULL: there is none to close). Its
 * status is one of those of weft_team_create; CLOSED if the team has gone; QUOTA if 4,096 workers
 * wait at that member; or TIMED_OUT if the team has not grown by params->deadline_ms. From then on
 * that time counts again, for the creation of the new team.
 *
 * Errors of the call: ADDRESS if the bytes are no invitation, and those of weft_connect_address.
 */
#define weft_team_join(...) weft_team_join_sized(sizeof(weft_team_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_team_join_sized(size_t params_size, weft_worker_t *worker,
                                            const void *invitation, size_t len,
                                            const weft_team_params_t *params);

typedef struct weft_team_info {
    uint32_t rank, size;
    uint32_t epoch; /* one more than that of the team that it was made of by shrinking or growing */
    /* WEFT_IN_PROGRESS before it is ready; an error: the team has failed, or is closing (CLOSED) */
    weft_status_t status;
    /*
     * The member that caused the failure; UINT32_MAX: none. Of a deadline that passed it is the
     * member whose deadline it was.
     */
    uint32_t blamed;
    /*
     * What happened, and how far the collective was, as a sentence; "" if it is not known. Examples
     * are "allreduce 12: rank 3 and 2 others did not take part in time" and "bcast 7, 9 of 14 steps
     * done: the exchange with rank 2 failed (WEFT_ERR_PEER_FAILED)". Valid until the team is
     * closed. weft_status_describe has it in the callback of each collective that failed with the
     * team. Collectives over messages, by slots, by lines and by single copies are counted apart; a
     * collective has the same number at all members.
     */
    const char *why;
    uint32_t n_hosts, ranks_per_core; /* 0 before the exchange has ended */
    int shares_memory;                /* all members share one memory segment */
    uint32_t n_endpoints;             /* that this member has opened to others, on first use */
} weft_team_info_t;

/* Describes the team, as this member sees it, in any state. Errors: none but those of every
 * function (weft/base.h). */
#define weft_team_describe(...) weft_team_describe_sized(sizeof(weft_team_info_t), __VA_ARGS__)
WEFT_API weft_status_t weft_team_describe_sized(size_t info_size, weft_team_t *team,
                                                weft_team_info_t *info_p);

/* Without a tag: weft_team_member is a function. */
typedef struct {
    uint64_t host;          /* equal for members of one host; 0: unknown */
    uint32_t leader;        /* the lowest rank on its host */
    uint32_t host_rank;     /* its place among the members of its host */
    uint32_t ranks_of_host; /* their number */
    uint32_t cores;         /* that it may run on */
    const void *address;    /* of its worker, for weft_connect_address; valid as the team */
    size_t address_len;
    int left; /* it has closed the team in good order */
    /*
     * How often a collective has waited here for this member for more than a second, and how long
     * these took in all. Of several at a time the first one counts, when it ends. A collective over
     * messages may wait for a member that itself waits for another.
     */
    uint32_t n_late;
    uint64_t late_ms;
} weft_team_member_t;

/* Describes a member. Errors: INVALID_PARAM for a rank out of range; BUSY before the exchange has
 * ended. */
#define weft_team_member(...) weft_team_member_sized(sizeof(weft_team_member_t), __VA_ARGS__)
WEFT_API weft_status_t weft_team_member_sized(size_t member_size, weft_team_t *team, uint32_t rank,
                                              weft_team_member_t *member_p);

/* This member's rank, and the number of members. Any thread. */
WEFT_API uint32_t weft_team_rank(const weft_team_t *team);
WEFT_API uint32_t weft_team_size(const weft_team_t *team);

/*
 * Returns this side's endpoint to a member. It is opened by the first use, this call or a message
 * of the team. NULL for a rank out of range, a member that cannot be reached, a team that is
 * closing, and before the exchange has ended.
 *
 * The endpoint is the team's, which closes it and learns of a loss by its on_error: weft_ep_close
 * and weft_ep_on_error return BUSY. weft_team_describe has what the team knows. The endpoint's user
 * pointer is the program's.
 *
 * Each side opens its own endpoint. A message that a member sends over its own endpoint therefore
 * arrives here over another endpoint (the handler's `ep`, weft_tag_info_t.ep). Reply on that one,
 * and put the rank into the message if the receiver needs it. That other one is not the team's: the
 * program closes it when the member has (weft_worker_params_t.on_error).
 *
 * These endpoints have no heartbeats: docs/teams.md, "A member that is stopped".
 */
WEFT_API weft_ep_t *weft_team_ep(weft_team_t *team, uint32_t rank);

/*
 * Closes the team on this side; members may close at different times. Collectives in progress end
 * as WEFT_ERR_CLOSED here, and fail the team. Without any, the close first waits until the other
 * members have received what this one sent to them, for close.timeout at most. A collective that
 * ended well here then does not fail there, and the process may exit after the close.
 * Returns WEFT_IN_PROGRESS, and the handle is gone when `op->done` begins, which gets WEFT_OK. In
 * the state STUB (weft/resource.h) it returns WEFT_OK, the handle is gone, and `op` has no effect.
 * Errors: BUSY if it is already closing, or is associated (weft/resource.h).
 */
WEFT_API weft_status_t weft_team_close(weft_team_t *team, const weft_op_t *op);

/*
 * As above, and drive the worker until the outcome is known (weft_ep_flush_wait). They return it.
 * If no team was made, there is nothing to close, and *team_p is not written.
 */
WEFT_API weft_status_t weft_team_create_wait(weft_worker_t *worker, const weft_exchange_t *exchange,
                                             weft_team_t **team_p);
WEFT_API weft_status_t weft_team_close_wait(weft_team_t *team);
WEFT_API weft_status_t weft_team_agree_wait(weft_team_t *team, uint64_t *flags_p, uint64_t *lost);
WEFT_API weft_status_t weft_team_grow_wait(weft_team_t *team, uint32_t inviter, uint32_t n,
                                           weft_team_t **team_p);
WEFT_API weft_status_t weft_team_join_wait(weft_worker_t *worker, const void *invitation,
                                           size_t len, weft_team_t **team_p);
WEFT_API weft_status_t weft_team_shrink_wait(weft_team_t *team, weft_team_t **team_p);
/* *team_p is NULL at members that are not in the new team. */
WEFT_API weft_status_t weft_team_split_wait(weft_team_t *parent, uint32_t colour, uint32_t key,
                                            weft_team_t **team_p);
WEFT_API weft_status_t weft_team_subset_wait(weft_team_t *parent, const weft_team_map_t *map,
                                             weft_team_t **team_p);

#ifdef __cplusplus
}
#endif
#endif
