/*
 * Exchanges for a team that is associated: over the endpoints of a set, by a collective of another
 * team, or by MPI.
 */
#include <collectives/missing.h>
#include <collectives/team.h>
#include <dlfcn.h>
#include <endpoints/core/worker.h>
#include <endpoints/messages/am.h>
#include <string.h>
#include <weft/collective.h>

#include "resource.h"

/* ---- over endpoints -------------------------------------------------------------------------- */

/*
 * The reserved id of the records of an exchange: header {rank, number}, then the record. A record
 * that comes before its exchange has begun here is dropped. Its member waits for ours then, and
 * answers it with its own, so nothing is kept for exchanges to come. A member answers each other
 * one once.
 */
enum { EXCHANGE_ID = AM_ID_RESERVED + 48, RECORD_MOST = 4096 };

struct exchange_head {
    uint32_t rank, number;
};

/* Of a worker: exchanges in the order they began. */
struct exchange_registry {
    struct list sets;
    uint32_t next_number;
    weft_worker_t *worker;
};

struct endpoint_set {
    struct list of_registry;
    struct exchange_registry *registry;
    weft_ep_t **ep;
    uint32_t rank, size, number, missing;
    bool *has;
    const uint8_t *mine;
    uint8_t *all;
    size_t len;
    weft_done_fn done;
    void *arg;
};

static void record_sent(weft_status_t status, void *record) {
    talloc_free(record);
}

/* Of a copy: the team may be gone before the endpoint is up. */
static weft_status_t send_record(const struct endpoint_set *set, uint32_t rank) {
    struct exchange_head head = {set->rank, set->number};
    void *record = talloc_memdup(weft__worker_reactor(set->registry->worker), set->mine, set->len);
    if (!record) return WEFT_ERR_NO_MEMORY;
    weft_iov_t iov = {record, set->len};
    weft_op_t op = {.done = record_sent, .arg = record, .flags = WEFT_AM_EAGER};
    weft_status_t st = weft__am_send(
        set->ep[rank], &(struct am_send_args){EXCHANGE_ID, &head, sizeof head, &iov, 1, &op});
    if (st != WEFT_IN_PROGRESS) record_sent(st, record);
    return st;
}

static void take_record(struct endpoint_set *set, uint32_t rank, const void *bytes) {
    set->has[rank] = true;
    memcpy(set->all + (size_t)rank * set->len, bytes, set->len);
    if (--set->missing) return;
    list_remove(&set->of_registry);
    set->done(WEFT_OK, set->arg);
}

static struct endpoint_set *find_set(const struct exchange_registry *registry, uint32_t number) {
    list_for_each(n, &registry->sets) {
        struct endpoint_set *set = list_of(n, struct endpoint_set, of_registry);
        if (set->number == number) return set;
    }
    return NULL;
}

/* Does `from` lead to the worker that has this rank? Not known before our own endpoint is up: then
 * the answer to our record is taken. */
static bool is_of_rank(const struct endpoint_set *set, uint32_t rank, const weft_ep_t *from) {
    const struct link *ours = set->ep[rank] ? set->ep[rank]->link : NULL;
    return from && from->link && ours && ours->peer && ours->peer == from->link->peer;
}

static void on_record(weft_ep_t *ep, weft_am_t *am, void *arg) {
    const struct exchange_registry *registry = arg;
    struct exchange_head head;
    if (am->header_len != sizeof head || !am->data) return;
    memcpy(&head, am->header, sizeof head);
    struct endpoint_set *set = find_set(registry, head.number);
    if (!set || head.rank >= set->size || set->has[head.rank] || am->len != set->len) return;
    if (!is_of_rank(set, head.rank, ep)) return;
    (void)send_record(set, head.rank); /* one that does not get it waits until its deadline */
    take_record(set, head.rank, am->data);
}

static const char registry_key;
static void close_registry(weft_worker_t *worker, void *object, void (*closed)(weft_worker_t *)) {
    (void)weft__am_handler_set(worker, EXCHANGE_ID, NULL, NULL);
    talloc_free(object);
    closed(worker);
}

static struct exchange_registry *registry_of(weft_worker_t *worker) {
    struct exchange_registry *registry = weft__worker_attached(worker, &registry_key);
    if (registry) return registry;
    registry = weft__new(worker, struct exchange_registry);
    if (!registry) return NULL;
    registry->worker = worker;
    list_init(&registry->sets);
    if (weft__worker_attach(worker, &registry_key, registry, close_registry) < 0) {
        talloc_free(registry);
        return NULL;
    }
    (void)weft__am_handler_set(worker, EXCHANGE_ID, on_record, registry);
    return registry;
}

static weft_status_t set_allgather(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                                   void *all, weft_done_fn done, void *done_arg) {
    struct endpoint_set *set = arg;
    if (len > RECORD_MOST) return WEFT_ERR_TOO_BIG;
    set->mine = mine;
    set->all = all;
    set->len = len;
    set->missing = set->size;
    set->done = done;
    set->arg = done_arg;
    /* One alone is no exchange that others count. */
    set->number = set->size > 1 ? set->registry->next_number++ : set->registry->next_number;
    memset(set->has, 0, set->size * sizeof *set->has);
    list_append(&set->registry->sets, &set->of_registry);
    for (uint32_t r = 0; r < set->size; r++) {
        weft_status_t st = r == set->rank ? WEFT_OK : send_record(set, r);
        if (st >= 0) continue;
        list_remove(&set->of_registry);
        return st;
    }
    take_record(set, set->rank, mine);
    return WEFT_OK;
}

static bool set_missing(const weft_team_t *team, char *buf, size_t size) {
    const struct endpoint_set *set = team->exchange.arg;
    struct missing missing = {.n = 0};
    for (uint32_t r = 0; r < set->size; r++)
        if (!set->has[r]) weft__missing_add(&missing, r);
    return weft__missing_name(&missing, "", buf, size);
}

static void set_cancel(void *arg) {
    list_remove(&((struct endpoint_set *)arg)->of_registry);
}

/* The own rank is where there is no endpoint, or as named. */
static weft_status_t find_rank(const struct association *a, struct endpoint_set *set) {
    const uint32_t *rank = weft__association_value(a, WEFT_RES_TEAM_RANK, sizeof *rank);
    set->rank = rank ? *rank : set->size;
    for (uint32_t r = 0; r < set->size; r++) {
        if (!set->ep[r] && set->rank == set->size) set->rank = r;
        if (set->ep[r] && set->ep[r]->worker != a->worker)
            return weft__fail(WEFT_ERR_NOT_SHAREABLE, "endpoint %u belongs to another worker", r);
        if (!set->ep[r] && r != set->rank)
            return weft__fail(WEFT_ERR_INVALID_PARAM, "endpoint %u is NULL", r);
    }
    return set->rank < set->size ? WEFT_OK
                                 : weft__fail(WEFT_ERR_INVALID_PARAM, "the own rank is not named");
}

static weft_status_t over_endpoints(struct association *a, weft_exchange_t *exchange) {
    const weft_resource_value_t *value = weft__association_array(a, WEFT_RES_ENDPOINT_SET);
    struct endpoint_set *set = weft__new(a, struct endpoint_set);
    if (!set) return WEFT_ERR_NO_MEMORY;
    a->set = set;
    set->size = (uint32_t)(value->len / sizeof *set->ep);
    set->ep = talloc_memdup(set, value->value, set->size * sizeof *set->ep);
    set->has = weft__alloc(set, set->size * sizeof *set->has, "records");
    set->registry = registry_of(a->worker);
    list_init(&set->of_registry);
    if (!set->ep || !set->has || !set->registry) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = find_rank(a, set);
    *exchange = (weft_exchange_t){set->rank, set->size, set_allgather, set_cancel, set};
    return st;
}

/* ---- by another team ------------------------------------------------------------------------- */

static weft_status_t team_allgather(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                                    void *all, weft_done_fn done, void *done_arg) {
    struct association *a = arg;
    weft_status_t st = weft_allgather(a->team, mine, all, len, WEFT_UINT8,
                                      &(weft_op_t){.done = done, .arg = done_arg});
    a->exchange_of = a->team->id;
    a->exchange_call = st == WEFT_IN_PROGRESS ? a->team->n_calls - 1 : NO_CALL;
    if (st == WEFT_OK) done(st, done_arg);
    return st < 0 ? st : WEFT_OK;
}

/* The other team may be gone, and what it has gathered held until the program polls. */
static bool team_missing(const weft_team_t *team, char *buf, size_t size) {
    const struct association *a = team->exchange.arg;
    const weft_team_t *parent = weft__team_find(team->registry, a->exchange_of);
    return parent && weft__missing_in(parent, a->exchange_call, buf, size);
}

static weft_status_t by_team(struct association *a, weft_exchange_t *exchange) {
    weft_team_t *const *team = weft__association_value(a, WEFT_RES_TEAM_HANDLE, sizeof *team);
    if (!team || !*team)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "%s is no team", WEFT_RES_TEAM_HANDLE);
    a->team = *team;
    if (a->team->worker != a->worker)
        return weft__fail(WEFT_ERR_NOT_SHAREABLE, "the team belongs to another worker");
    weft_status_t st = weft__team_usable(a->team);
    *exchange = (weft_exchange_t){weft_team_rank(a->team), weft_team_size(a->team), team_allgather,
                                  NULL, a};
    return st;
}

/* ---- by MPI ---------------------------------------------------------------------------------- */

static weft_status_t mpi_allgather(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                                   void *all, weft_done_fn done, void *done_arg) {
    const weft_mpi_t *mpi = arg;
    if (len > INT32_MAX) return WEFT_ERR_TOO_BIG;
    int error = mpi->allgather(mpi->communicator, mine, (int)len, all);
    if (error) return weft__fail(WEFT_ERR_IO, "MPI_Allgather returned %d", error);
    done(WEFT_OK, done_arg);
    return WEFT_OK;
}

static weft_status_t by_mpi(struct association *a, weft_exchange_t *exchange) {
    const weft_mpi_t *mpi = weft__association_value(a, WEFT_RES_TEAM_MPI, sizeof *mpi);
    int rank = 0, size = 0;
    if (!mpi || !mpi->rank || !mpi->size || !mpi->allgather)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "%s lacks a function", WEFT_RES_TEAM_MPI);
    a->mpi = *mpi;
    if (mpi->rank(mpi->communicator, &rank) || mpi->size(mpi->communicator, &size) || size < 1 ||
        rank < 0 || rank >= size)
        return weft__fail(WEFT_ERR_IO, "MPI does not know the rank or the size");
    *exchange = (weft_exchange_t){(uint32_t)rank, (uint32_t)size, mpi_allgather, NULL, &a->mpi};
    return WEFT_OK;
}

weft_status_t weft__set_exchange(struct association *a, weft_exchange_t *exchange_p) {
    weft_team_t *team = a->object;
    if (a->kind == &weft__resource_kinds[WEFT_RESOURCE_MPI]) return by_mpi(a, exchange_p);
    bool by = a->kind == &weft__resource_kinds[WEFT_RESOURCE_TEAM];
    team->missing = by ? team_missing : set_missing;
    return by ? by_team(a, exchange_p) : over_endpoints(a, exchange_p);
}
