/* A team at one member: its members, its collectives in progress, and its shared memory. */
#ifndef WEFT_COLLECTIVES_TEAM_H
#define WEFT_COLLECTIVES_TEAM_H

#include <base/list.h>
#include <endpoints/core/worker.h>
#include <weft/collective.h>

#include "machines.h"
#include "plan.h"
#include "segment.h"
#include "select.h"
#include "share.h"
#include "wire.h"

/* A team that was closed here in good order. */
struct departed {
    uint64_t team; /* 0: none */
    uint32_t epoch, rank;
};
enum { DEPARTED_KEPT = 256 };

/* All teams of one worker. It finds the team of a message. */
struct team_registry {
    weft_worker_t *worker;
    struct reactor *reactor;
    uint64_t host; /* of the worker, for `host_user`; 0: not asked yet, or not known */
    uint32_t host_user;
    struct list teams;
    struct list joins;   /* of workers that join a team */
    struct list orphans; /* messages of teams whose exchange is still in progress here */
    uint32_t n_orphans;
    bool lost_orphan;     /* for lack of memory: such a team cannot be made */
    struct list incoming; /* long messages of agreements, on their way (agreement.c) */
    struct departed departed[DEPARTED_KEPT]; /* the latest ones, whose members may still ask */
    uint32_t n_departed;                     /* so far */
    void (*closed)(weft_worker_t *worker);   /* set: the worker waits for the last team */
};

/* Of those that depend on the team, and are notified when it fails. */
struct team_watch {
    struct list of_team;
    void (*failed)(struct team_watch *watch);
};

/* By which the members of a team agree for the first time, where they can before any two of them
 * are connected: what they made the team of. */
struct team_meeting {
    /* `agreed` of this member goes to all; weft__team_agreed() follows, or the team fails. */
    void (*agree)(struct team_meeting *meeting);
    /* The team has failed here: nothing follows, and the others learn of it. */
    void (*leave)(struct team_meeting *meeting);
};

struct member {
    struct weft_team *team;
    weft_ep_t *ep;           /* NULL: not open */
    uint64_t worker;         /* the id of its worker, from its record */
    struct member_core core; /* has it left, or answered? */
    /* by which its LEAVE came, unanswered while its messages are in flight; 0: none */
    uint32_t leave_ep;
    weft_status_t why; /* its endpoint ended */
    bool up;           /* its endpoint is open */
    bool lost;         /* its endpoint failed, or another member said so in an agreement */
    bool shares;       /* memory with this one */
    /* that waits for it, and has for a second; NULL: none */
    const struct collective *late_in;
    uint32_t n_late;  /* such collectives that have ended, */
    uint64_t late_ns; /* and how long they took */
};

/* It closes in good order, and begins no new message. */
static inline bool member_is_gone(const struct member *member) {
    return member_has_left(&member->core.fsm);
}

/* The last choice for a kind of collective, and what it followed from (call.c).
 * The rest of a team does not change after its records were read. */
struct coll_chosen {
    const struct segment *segment;
    uint64_t count, single_least;
    uint32_t width, set_size, per_core;
    enum coll_memory memory;
    bool fixed_order, persistent, tagged;
    bool known; /* there was one */
    unsigned algorithm;
};

/* The uses of the lines of the segment, at this member (oneshot.c). */
struct team_lines {
    uint64_t next;          /* for the next collective */
    uint64_t entered, left; /* all uses below these, in order */
    uint64_t *left_by;      /* by each member: a lower bound, from the lines that were read */
    uint64_t left_by_all;   /* the least of them, or less */
};

/* Calls that looked for the others in vain, less those that did not; and calls that will not look
 * (within.h). */
struct team_look {
    unsigned late, calls_without;
};

/* The uses of the offers of the segment, at this member (single_copy.c). */
struct team_offers {
    uint64_t next;             /* for the next collective */
    uint64_t entered, read;    /* all uses below these, in order */
    uint64_t *read_by;         /* by each member: a lower bound, from the blocks that were read */
    uint64_t read_by_all;      /* the least of them, or less */
    uint64_t least;            /* bytes of a block from which on it pays; 0: it cannot be had */
    bool exposed;              /* all members had exposed regions */
    uint64_t nonce;            /* of this member, where the others look for it */
    uint8_t *scratch;          /* of reductions; NULL: none yet */
    struct piece *blocks;      /* of a v-form within its call; NULL: none yet */
    struct offered_maps *maps; /* of the others' memory (offered.h); NULL: none yet */
};

/* Members start, start + stride, …: `size` of them; 0: all. */
struct coll_set {
    uint32_t start, stride, size;
};

/* Collectives that follow one another: all of a team, or those of one tag and one set. */
struct coll_order {
    struct list of_team;
    uint32_t stream;   /* as on the wire */
    uint32_t next_seq; /* the number of the next one */
    uint32_t unjoined; /* in a row that did not synchronise the members */
    uint64_t tag;
    struct coll_set set;
};

struct weft_team {
    struct team_core core;
    struct team_registry *registry;
    weft_worker_t *worker;
    weft_worker_t *opener; /* by whose lease its endpoints are opened; usually `worker` */
    struct stub *stub;     /* in associated mode; NULL: not */
    bool associated;       /* closed by the end of its association only */
    bool outlives, rested; /* its handle stays when it has closed; it has */
    struct reactor *reactor;
    struct list of_registry;

    uint32_t rank, size, per_core, epoch;
    uint64_t id; /* 0: the exchange is in progress */
    /* Writes whom its exchange or its meeting waits for, in progress: false where it waits for no
     * member. NULL: the program's own exchange, which does not say. */
    bool (*missing)(const struct weft_team *team, char *buf, size_t size);
    weft_status_t status; /* why it failed */
    uint32_t blamed;      /* the member that caused it; NO_RANK: it is only closing */
    char why[160];        /* what that member did, or did not do; "": only the status is known */
    struct member *member;
    struct member_record *record; /* the contribution of each member to the exchange */
    uint32_t *host_of;            /* of each member: the lowest rank on its host */
    uint32_t n_hosts;
    uint32_t n_eps;         /* open or closing */
    uint32_t n_outstanding; /* members whose LEAVE is unanswered */

    weft_exchange_t exchange;
    uint8_t *mine, *all;     /* its buffers */
    weft_status_t exchanged; /* IN_PROGRESS while it runs */
    struct timer deadline;
    struct job exchange_over, connect, notify, release, quiet, gone;
    void (*on_ready)(weft_team_t *, weft_status_t, void *);
    void *arg;
    bool notice_due, notice_held; /* of on_ready; held until its parent serves again */
    weft_done_fn closed;
    void *closed_arg;
    bool is_parent;               /* a team is being made of it, by collectives of its own */
    uint64_t inner;               /* the number of the latest of these; NO_CALL: it is over */
    struct team_meeting *meeting; /* NULL: they agree by messages, or have agreed */
    struct list watches;
    uint32_t n_graphs;         /* over the team, so far (runtime/graph) */
    struct team_grow *growing; /* at the inviter, while the team grows */
    struct list joiners;       /* workers that ask to join by this member */
    uint32_t n_joiners;

    struct coll_types *types; /* the program's own; NULL: none */
    bool same_long_double;    /* its format is that of all members */
    struct choices choices;
    struct plans plans;
    void *standby; /* scratch memory of the last collective, for the next */
    uint64_t spare_bytes;
    uint64_t eager; /* the largest step that is sent unasked, to members that share no memory */
    uint64_t segment_bytes, unexpected_most, unexpected_bytes;
    uint64_t time_limit;     /* of a collective that names none, ns; 0: none */
    struct coll_order order; /* of collectives over messages, by their calls */
    struct list streams;     /* of those matched by a tag, or of some members only */
    struct list persistent;  /* collectives, and how many there were */
    uint64_t n_persistent;
    uint64_t n_calls;            /* collectives without a tag, so far */
    uint32_t n_peer, n_deferred; /* of these, in progress: by peer memory; behind such a one */
    struct coll_chosen chosen[N_COLL_KINDS];
    struct coll_last *last[N_COLL_KINDS]; /* call_again.c; NULL: none yet */
    bool waits;        /* a form that waits is calling: it does nothing else until it is over */
    uint32_t n_waited; /* such forms that were over within their call, and their yields */
    struct team_look look;
    struct team_lines lines;
    struct team_offers offers;
    bool is_safe;            /* a collective with WEFT_COLL_SAFE is in progress */
    struct list agreements;  /* the newest first; those whose messages may still come */
    uint32_t n_agreements;   /* begun here */
    struct list active;      /* collectives, in the order begun */
    struct list idle;        /* free collectives for reuse */
    uint32_t n_idle;         /* their number */
    struct list spare_early; /* memory for such messages */
    uint32_t n_spare_early;
    struct list early;       /* messages of collectives that have not begun here */
    struct segment *segment; /* of all members; NULL: there is none */
    struct coll_share share; /* the same; or that of the members of this host */
    bool mates;              /* of several hosts: those of this one are to have a segment */
    uint64_t opens;          /* its maker's process and descriptor; 0: it has none */
    struct poller poller;    /* polls the segment while collectives use it */
    uint32_t agreed;         /* the result of the first collective (team_share.c) */
    uint32_t of_parent;      /* what the members of its parent agreed on; 0: it has none */
    bool all_came;           /* the first collective has succeeded, or may have at another member */
    bool warns;         /* it has not, and members that may not be connected yet learn of that */
    bool blames_itself; /* the member to blame reported the failure */
};

/* No number of a collective. */
#define NO_CALL UINT64_MAX

/* Collectives in a row in which a member may run ahead of the others: the next one joins them. */
enum { UNJOINED_MOST = 32 };

/*
 * A step between members that share memory waits for its receiver from this size on: then it is
 * copied once. Unasked, an alltoall of 32 KiB among four took 86 us there instead of 25. Over tcp
 * the question costs more than a copy: an allgather of 64 KiB among two took 37 us instead of 22.
 */
enum { EAGER_LEAST = 16 << 10 };
static inline uint64_t team_eager(const weft_team_t *team, uint32_t rank) {
    bool less = team->member[rank].shares && team->eager > EAGER_LEAST;
    return less ? EAGER_LEAST : team->eager;
}

/* ---- api.c */

/* The parameters of a team that another one makes: it has that one's exchange. */
weft_status_t weft__team_params_read(weft_team_params_t *known, const weft_team_params_t *params,
                                     size_t params_size);

/* ---- team.c */

/* `epoch`: 0, or one more than that of the team whose members it continues. */
weft_status_t weft__team_create(weft_worker_t *worker, const weft_team_params_t *params,
                                uint32_t epoch, weft_team_t **team_p);
/* While its parent serves it alone: on_ready is called when the parent serves others again. */
void weft__team_hold_notice(weft_team_t *team, bool hold);
/* A collective of the team's own, while another team is made of it. `inner` is its number. */
weft_status_t weft__team_inner(weft_team_t *team, const weft_coll_args_t *args,
                               const weft_op_t *op);
/* One that could not be begun, when the program's call had returned. The others are in it, and what
 * the program called next would stand in its place: the team fails. */
void weft__team_out_of_step(weft_team_t *team, weft_status_t status);

/* A team in associated mode. It begins with the exchange that its resource makes. */
weft_status_t weft__team_stub(weft_worker_t *worker, const weft_team_params_t *params,
                              weft_team_t **team_p);
weft_status_t weft__team_stub_begin(struct stub *stub, const weft_exchange_t *exchange);
weft_status_t weft__team_stub_close(weft_team_t *team);
/* It has closed, and is without a resource again. Calls return `status`. */
void weft__team_stub_rest(struct stub *stub, weft_status_t status);

/* Fails the team with its first error, and notifies the other members. */
void weft__team_fail(weft_team_t *team, weft_status_t status, uint32_t blamed);
/* The same where the association of its worker has ended with `status`: no member is to blame. */
void weft__team_unworked(weft_team_t *team, weft_status_t status);
/* Of a team that has failed, what its NOTICE says: for the others, a member that closed in the
 * middle of something has failed. */
weft_status_t weft__team_notice_status(const weft_team_t *team);
/* Continues a close after something that it waits for has ended. */
void weft__team_settle(weft_team_t *team);
weft_status_t weft__team_close(weft_team_t *team, const weft_op_t *op);
/* The status of a collective after an endpoint ended with `status`. */
weft_status_t weft__team_outcome(weft_status_t status);
/* What its failure is put down to, in words. */
void weft__team_reason(const weft_team_t *team, char *buf, size_t size);
/* The team of that id; NULL: it is not here. */
weft_team_t *weft__team_find(struct team_registry *registry, uint64_t id);
/* WEFT_OK, WEFT_ERR_BUSY before the team is ready, or the status of the failed team. */
weft_status_t weft__team_usable(const weft_team_t *team);

/* ---- team_records.c */

/* Writes `mine`, the record of this member. Rank 0 creates the segment for it. */
weft_status_t weft__team_describe(weft_team_t *team, const weft_team_params_t *params);
/* Checks the records of all members, and sets what follows from them. */
weft_status_t weft__team_read_records(weft_team_t *team);
/* Bytes that every transport of `transports` carries in one piece. Only such a message is sent
 * unasked: it is there when its handler runs. */
uint64_t weft__team_one_piece(const weft_worker_t *worker, const char *transports);

/* ---- team_share.c */

/* What the records say about shared memory: this member makes its part of it. */
void weft__team_share(weft_team_t *team);
/* The first collective: all are there, and agree about the memory. Then TEAM_EV_AGREED. */
weft_status_t weft__team_meet(weft_team_t *team);
/* The end of its meeting: `agreed` is the largest of what the members have. */
void weft__team_agreed(weft_team_t *team, uint32_t agreed);
void weft__team_unshare(weft_team_t *team);

/* ---- team_member.c */

/* The endpoint of a rank, opened on first use. NULL: the rank is not there. */
weft_ep_t *weft__team_ep(weft_team_t *team, uint32_t rank);
/* Endpoints that connect all members, directly or by others. The team fails if one cannot be. */
void weft__team_connect(weft_team_t *team);
/* All members are there, in zeroed memory. */
void weft__team_init_members(weft_team_t *team);
void weft__team_close_eps(weft_team_t *team);

/* ---- team_leave.c */

/*
 * A member closes in good order, and waits for RELEASE over `ep`, by which its LEAVE came.
 * `notified` are `len` bytes of bits: the members that it has notified itself.
 */
void weft__team_left(weft_team_t *team, uint32_t rank, const weft_ep_t *ep, const uint8_t *notified,
                     size_t len);
/* The same, passed on by another member. */
void weft__team_left_elsewhere(weft_team_t *team, uint32_t rank, const uint8_t *notified,
                               size_t len);
/* A member has received everything that this side sent. */
void weft__team_released(weft_team_t *team, uint32_t rank);
/* Answers members that wait for messages which are no longer in flight. */
void weft__team_answer(weft_team_t *team);
/* LEAVE to all that have not left, when the collectives of this side are over. */
void weft__team_send_leave(weft_team_t *team);
/* RELEASED comes when `weft__team_all_released`, or the deadline of a close. */
void weft__team_await_release(weft_team_t *team);
bool weft__team_all_released(const weft_team_t *team);

/* ---- registry.c */

weft_status_t weft__team_registry(weft_worker_t *worker, struct team_registry **registry_p);
/* The id of the team is known: delivers the messages that came before. */
void weft__team_registry_adopt(struct team_registry *registry, weft_team_t *team);
/* `opener` works by the registry's worker no more: its teams fail with `status`, and close. */
void weft__teams_unworked(weft_worker_t *worker, const weft_worker_t *opener, weft_status_t status);
/* Those that are there, also in the middle of their close. */
uint32_t weft__teams_of(weft_worker_t *worker, const weft_worker_t *opener);
void weft__team_registry_forget(struct team_registry *registry);
void weft__team_registry_leave(struct team_registry *registry, weft_team_t *team);
/* A worker that closes goes on when the last team, and the last that joins, is gone. */
void weft__team_registry_settle(struct team_registry *registry);
/* A message that is no step of a collective; its payload is copied. */
void weft__coll_send_copy(struct team_registry *registry, weft_ep_t *ep, enum coll_wire_id id,
                          const struct coll_wire *wire, const void *bytes, size_t len);
/* Answers a LEAVE over the endpoint by which it came. This side's own endpoint to that member may
 * have been closed by the other's program. `from`: the rank of this side. */
void weft__team_release(struct team_registry *registry, weft_ep_t *ep, uint64_t team,
                        uint32_t epoch, uint32_t from);

#endif
