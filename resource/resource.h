/* Descriptions of resources, and the associations of objects with them. */
#ifndef WEFT_RESOURCE_RESOURCE_H
#define WEFT_RESOURCE_RESOURCE_H

#include <base/list.h>
#include <base/stub.h>
#include <pthread.h>
#include <reactor/reactor.h>
#include <stdatomic.h>
#include <weft/resource.h>

#include "machines.h"

struct kind;
struct lease;
struct domain; /* transports/domain.h */

/* Copied values; a talloc child of its owner. */
struct values {
    weft_resource_value_t *value;
    size_t n;
};
weft_status_t weft__values_copy(const void *parent, const weft_resource_value_t *given, size_t n,
                                struct values *values_p);
const weft_resource_value_t *weft__values_find(const struct values *values, const char *key);

/* A talloc root. `lock` guards the list of users and the status. */
struct weft_resource {
    weft_resource_kind_t kind;
    char *name, *build_id;
    struct values values;
    const char **mandatory; /* of USER */
    size_t n_mandatory;
    weft_resource_provider_t provider;
    weft_thread_mode_t thread_mode;
    weft_share_t share;
    weft_lease_t lease;
    pthread_t owner;
    uint32_t generation; /* of the process that described it (reactor.h) */
    pthread_mutex_t lock;
    struct list users; /* struct association */
    size_t n_users;
    unsigned n_posted;      /* notices for the provider that have not returned */
    bool released;          /* and freed when they have */
    weft_status_t status;   /* OK, DISASSOCIATED (withdrawn), RESOURCE_LOST */
    weft_done_fn withdrawn; /* of a withdrawal that waits for users */
    void *withdrawn_arg;
    weft_worker_t *exporter;    /* of an exported object: its worker */
    bool attached;              /* that worker knows it */
    bool watched;               /* it knows of `watch`, too */
    int own_fd;                 /* closed with the description; -1: none */
    struct cuda_import *import; /* device memory of the other process; NULL: none */
    struct domain *domain;      /* a protection domain of the other process; NULL: none */
    int channel;                /* to the other process; -1: none */
    struct watch watch;         /* of `channel` */
    struct reactor *watcher;
};

/* What the provider asks of a user. Each is asked once, and needs no memory then. */
enum notice { NOTICE_RECALL, NOTICE_LOSE, N_NOTICES };
/* How a notice gets there: the consumer takes it when it has begun, or when its worker has closed;
 * it is offered to the consumer's reactor; or the provider's thread runs it. */
enum notice_way { NOTICE_WAITS, NOTICE_OFFERED, NOTICE_HERE };
struct posted_notice {
    struct remote remote;
    struct association *a;
    struct posted_notice *next; /* of those that are posted together */
    uint64_t drain_ms;          /* the time for a recall; 0: close.timeout */
    bool posted, waits;         /* `lock` of the resource guards them */
};

struct association {
    struct association_core core;
    struct grant_core grant;
    weft_resource_t *resource;
    struct list of_resource;
    struct stub *stub; /* NULL: the object needs no associated mode */
    void *object;
    weft_object_t type;
    const struct kind *kind;
    struct values values; /* the consumer's, before the resource's */
    size_t n_acquired;    /* of the resource's values */
    weft_lease_t wanted;
    weft_worker_t *worker; /* that does the work; NULL: none does */
    struct reactor *reactor;
    struct reactor *ends_in;     /* of a worker that is its own, while it closes */
    enum notice_way way;         /* `lock` of the resource guards it */
    bool ends;                   /* and this: a thread has begun to end it (of a context) */
    struct timer deadline, look; /* while it drains */
    uint64_t look_ns;            /* until the next look */
    uint64_t drain_ms;           /* 0: close.timeout */
    void (*on_lost)(void *, weft_status_t, void *);
    void *arg;
    weft_done_fn done; /* of the disassociation */
    void *done_arg;
    void (*worker_closed)(weft_worker_t *); /* the worker waits for this association */
    struct posted_notice notice[N_NOTICES];
    atomic_uint notices; /* posted to the reactor, and not run yet */
    bool over;           /* freed with its last notice */

    /* of the kinds */
    struct lease *lease;
    weft_listener_t *listener; /* of SOCKET; `lock` of the resource guards it */
    struct link *link;         /* of a connected socket; perhaps gone */
    weft_events_t events;
    struct watch watch;
    struct job again;
    struct timer pause;
    unsigned n_vain;   /* rounds in a row in which `arm` was not 0, and `progress` found nothing */
    bool *ended_p;     /* while its program makes progress: set when it is freed; else NULL */
    weft_team_t *team; /* a team's exchange, */
    uint64_t exchange_of, exchange_call; /* and the collective of that id and number */
    weft_mpi_t mpi;
    struct endpoint_set *set;
    void *cuda_context, *cuda_stream; /* a stream of Weft's in a context that was given */
    bool begun;                       /* the kind has begun */
    bool closed;                      /* what was closed has ended */
};

/* What makes an object work with a resource. A function that a kind does not need is NULL. */
struct kind {
    const char *name;
    unsigned objects;         /* bits of weft_object_t */
    bool ends_itself;         /* a drain has no deadline of its own, and `look` is called */
    bool plain;               /* the object is any worker, and may have several of the kind */
    bool is_worker;           /* the resource is the worker that does the work */
    const char *mandatory[4]; /* the last one is NULL */
    /* The object works from now on. After an error nothing has changed. */
    weft_status_t (*begin)(struct association *a);
    /* Ends it. `abort`: at once, and operations end as RESOURCE_LOST. May be called again. */
    void (*drain)(struct association *a, weft_status_t status, bool abort);
    bool (*drained)(struct association *a);
    void (*end)(struct association *a); /* nothing is used any more */
};
extern const char *const weft__object_names[]; /* by weft_object_t */
extern const struct kind weft__resource_kinds[WEFT_N_RESOURCE_KINDS];

/* association.c: a new one, of `resource`, `type`, `object` and `kind`. */
void weft__association_init(struct association *a);
/* It is not freed before it is let go, whatever a callback does. */
void weft__association_hold(struct association *a);
void weft__association_let_go(struct association *a);
/* Places for its timers, and word of the worker's close; and the same back. */
weft_status_t weft__association_reserve(struct association *a);
void weft__association_unreserve(struct association *a);
/* Every event of the consumer's machine. The object's stub shows its state to other threads. */
void weft__association_step(struct association *a, unsigned event);
/* The object is free to be associated again. */
void weft__association_unclaim(struct stub *stub);
/* Its object works. */
void weft__association_works(struct association *a);
/* Writes the lines of weft-info --live. */
void weft__association_show(weft_worker_t *worker);

/* associate.c: a value of the association, of at least `size` bytes; NULL: none. */
const void *weft__association_value(const struct association *a, const char *key, size_t size);

/* The same, of any size. */
const weft_resource_value_t *weft__association_array(const struct association *a, const char *key);

/* A notice of the provider, which the caller has counted: to the consumer's reactor, within `lock`
 * (false: that takes none); and on this thread. */
bool weft__association_offer(struct posted_notice *notice);
void weft__association_run(struct posted_notice *notice);
/* It works: from now on notices reach it, and the caller lets it go. And its worker has closed: it
 * takes those that wait. */
void weft__association_open(struct association *a);
void weft__association_take_waiting(struct association *a);
/* Of a worker: the associations of its endpoints, teams and regions, and of its sockets and
 * descriptors; how many there are; the end of the latter alone. */
void weft__association_lose_objects(struct association *a);
void weft__association_return_plain(struct association *a);
unsigned weft__association_objects(const struct association *a);
/* The reactor in which it ended is gone. */
void weft__association_alone(struct association *a);
/* Asks again whether it has drained. */
void weft__association_look(struct association *a);
weft_status_t weft__association_disassociate(struct association *a, const weft_op_t *op);

/* Where it ends, as long as it does; NULL: at once. */
struct reactor *weft__association_reactor(const struct association *a);
/* Of a resource of this process, or FORKED. */
weft_status_t weft__resource_check(const weft_resource_t *r);
/* Behind each call of the program's for it: a child that was forked there ends. */
static inline void weft__resource_program_returned(const weft_resource_t *r) {
    weft__program_returned_to(r->generation);
}
/* The association of this object that is not over; NULL: none. */
struct association *weft__resource_user(weft_resource_t *r, const void *object);
/* The loop in which the associations of `object` (NULL: of all) end, and its worker, NULL while
 * they drain. *reactor_p is NULL if they end at once. UNSUPPORTED: there are several loops.
 * WRONG_THREAD: another thread runs it. */
weft_status_t weft__resource_reactor(weft_resource_t *r, const void *object,
                                     struct reactor **reactor_p, weft_worker_t **worker_p);
/* The listener of an association on a SOCKET; NULL: none any more. */
void weft__association_listens(struct association *a, weft_listener_t *listener);
/* A call of the provider's `notify` will follow: the resource is kept until then. */
void weft__resource_post(weft_resource_t *r);
/* That call. There is none after the release. */
void weft__resource_notify(weft_resource_t *r, weft_resource_event_t event);
/* Posts to the provider's worker, which lives until the resource is lost. False: there is none, it
 * takes nothing any more, or there is no memory. */
bool weft__resource_post_provider(weft_resource_t *r, void (*fn)(void *arg), void *arg);
/* An association ended, and is no user any more. False: a notice holds it. Both are found within
 * `lock`, so that no notice comes to one that leaves. The resource may be gone from then on. */
struct resource_left {
    uint32_t generation;    /* of the resource */
    weft_done_fn withdrawn; /* to be called here, of the withdrawal that waited for it; or NULL */
    void *arg;
};
bool weft__resource_leave(struct association *a, struct resource_left *left_p);
/* After it: notifies who withdrew the resource. */
void weft__resource_returned(const struct resource_left *left);

/* lease.c */
weft_status_t weft__lease_take(weft_worker_t *provider, const weft_lease_t *whole,
                               const weft_lease_t *wanted, struct lease **lease_p);

/* team.c: exchanges for a team */
weft_status_t weft__set_exchange(struct association *a, weft_exchange_t *exchange_p);

#endif
