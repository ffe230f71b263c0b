/*
 * Libraries that work by the nodes' workers (weft/resource.h), within leases. They are associated,
 * and end, while they and the program have operations under way: by themselves, by a withdrawal,
 * by a loss, with the provider's worker. What a library was promised comes once, before its end,
 * and nothing of it reaches the program or another library.
 */
#include <stdlib.h>
#include <string.h>

#include "world.h"

enum { MAGIC = 0x11b2a2e5 };

struct payload {
    uint32_t magic, to, association;
    uint8_t bytes[];
};

static bool is_ready(const struct library *l) {
    return l->state == LIBRARY_READY;
}
static struct library *peer_at(const struct library *l, uint32_t node) {
    return &world->library[node][l->family];
}
static uint32_t number_of(const struct library *l) {
    return l->node->n * FAMILIES + l->family;
}

/* ---- its operations -------------------------------------------------------------------------- */

static struct deed *deed_new(struct library *l, size_t len) {
    struct deed *d = calloc(1, sizeof *d + len);
    if (!d) abort();
    d->library = l;
    d->association = l->association;
    d->len = len;
    d->next = world->deed;
    return world->deed = d;
}

/* Errors that say that the library, or who asked, made a mistake. */
static void check_status(weft_status_t status) {
    if (status == WEFT_ERR_INTERNAL || status == WEFT_ERR_PROTOCOL ||
        status == WEFT_ERR_INVALID_PARAM || status == WEFT_ERR_NO_MEMORY)
        wrong("an operation of a library ends as %s", weft_status_name(status));
}

/* The bytes of an active message may lie anywhere. */
static void check_payload(const struct library *l, const void *bytes, size_t len) {
    const uint8_t *rest = (const uint8_t *)bytes + sizeof(struct payload);
    struct payload head = {0};
    memcpy(&head, bytes, len < sizeof head ? len : sizeof head);
    if (len < sizeof head || head.magic != MAGIC || head.to != number_of(l))
        wrong("library %u has a message of another", number_of(l));
    if (head.association != l->association)
        wrong("library %u has a message to its association %u in its %u", number_of(l),
              head.association, l->association);
    for (size_t i = 0; i < len - sizeof head; i++)
        if (rest[i] != (uint8_t)(i + head.association))
            wrong("library %u has a wrong byte", number_of(l));
    world->n_checked += len;
}

static void deed_done(weft_status_t status, void *arg) {
    struct deed *d = arg;
    CALLED((uint64_t)number_of(d->library) << 8 | 17);
    if (d->notified) wrong("an operation of a library is reported twice");
    if (d->library->association != d->association)
        wrong("an operation of library %u survives its association", number_of(d->library));
    d->notified = true;
    check_status(status);
    if (d->receives && status == WEFT_OK) check_payload(d->library, d->bytes, d->info.len);
    act_within();
    RETURNS;
}

/* What came of the call; one that did not begin is over. */
static void answered(struct deed *d, weft_status_t status) {
    world->n_asked++;
    if (status < 0) check_status(status);
    if (status == WEFT_OK && d->receives) check_payload(d->library, d->bytes, d->info.len);
    d->accepted = status == WEFT_IN_PROGRESS;
    if (!d->accepted && d->notified) wrong("a call that did not begin is reported");
}

static bool has_deeds(const struct library *l) {
    for (const struct deed *d = world->deed; d; d = d->next)
        if (d->library == l && d->accepted && !d->notified) return true;
    return false;
}

static void on_payload(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct library *l = arg;
    CALLED((uint64_t)number_of(l) << 8 | 18);
    check_payload(l, am->data, am->len);
    act_within();
    RETURNS;
}

/* An active message lies in memory when its handler runs; a tagged one may be fetched. */
static size_t payload_size(bool tagged) {
    return sizeof(struct payload) + (tagged && percent(15) ? below(100000) : below(200));
}

static void write_payload(struct deed *d, const struct library *to) {
    struct payload *payload = (struct payload *)d->bytes;
    *payload = (struct payload){MAGIC, number_of(to), to->association};
    for (size_t i = 0; i < d->len - sizeof *payload; i++)
        payload->bytes[i] = (uint8_t)(i + to->association);
}

static void send_payload(struct library *l) {
    struct library *to = peer_at(l, below(NODES));
    weft_ep_t *ep = l->ep[to->node->n];
    if (!ep || !is_ready(to) || l->to_association[to->node->n] != to->association) return;
    bool tagged = percent(50);
    struct deed *d = deed_new(l, payload_size(tagged));
    write_payload(d, to);
    weft_iov_t iov = {d->bytes, d->len};
    weft_op_t op = {.done = deed_done, .arg = d, .deadline_ms = percent(5) ? 1 + below(20) : 0};
    answered(d, tagged ? weft_tag_send(ep, 1 + below(3), &iov, 1, &op)
                       : weft_am_send(ep, 1 + below(3), NULL, 0, &iov, 1, &op));
}

static void receive_payload(struct library *l) {
    struct deed *d = deed_new(l, 110000);
    d->receives = true;
    weft_iov_t iov = {d->bytes, d->len};
    weft_op_t op = {.done = deed_done, .arg = d};
    answered(d, weft_tag_recv(l->worker, 1 + below(3), percent(70) ? UINT64_MAX : 0, &iov, 1,
                              &d->info, &op));
}

/* ---- endpoints ------------------------------------------------------------------------------- */

static void on_ep_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct library *l = arg;
    CALLED((uint64_t)number_of(l) << 8 | 19);
    check_status(status);
    for (uint32_t i = 0; i < NODES; i++)
        if (l->ep[i] == ep) l->ep[i] = NULL;
    RETURNS;
}

static void connect_library(struct library *l) {
    struct library *to = peer_at(l, below(NODES));
    uint8_t address[512];
    size_t len = sizeof address;
    uint32_t n = to->node->n;
    bool same = to == l;
    if (!is_ready(to) || to->node->closing || same != !strcmp(world->transports, "self")) return;
    if (l->ep[n] && l->to_association[n] == to->association) return;
    if (weft_worker_address(to->worker, address, &len) < 0) return;
    weft_ep_params_t params = {.on_error = on_ep_error, .arg = l};
    if (weft_connect_address(l->worker, address, len, &params, &l->ep[n]) < 0) l->ep[n] = NULL;
    l->to_association[n] = to->association;
}

/* ---- its association ------------------------------------------------------------------------- */

static void on_lost(void *object, weft_status_t status, void *arg) {
    struct library *l = arg;
    CALLED((uint64_t)number_of(l) << 8 | 20);
    trace("library %u is lost", number_of(l));
    if (status != WEFT_ERR_RESOURCE_LOST || l->n_lost++) wrong("a library is lost twice");
    l->state = LIBRARY_ENDING;
    RETURNS;
}

static void associate(struct library *l) {
    weft_resource_value_t value = {WEFT_RES_WORKER_HANDLE, &l->node->worker,
                                   sizeof l->node->worker};
    weft_resource_params_t described = {
        .kind = WEFT_RESOURCE_WORKER, .values = &value, .n_values = 1, .share = WEFT_SHARE_PART};
    weft_associate_params_t params = {.on_lost = on_lost, .arg = l};
    weft_worker_params_t stub = {.associated = 1};
    params.lease.am_first = 512 + 64 * l->family;
    params.lease.tag_first = (UINT64_C(1) << 63) + ((uint64_t)l->family << 48);
    if (!l->worker && weft_worker_create(world->libraries, &stub, &l->worker) < 0)
        wrong("no worker in associated mode");
    for (unsigned id = 1; id <= 3; id++) (void)weft_am_handler_set(l->worker, id, on_payload, l);
    if (weft_resource_describe(&described, &l->resource) < 0) wrong("no resource");
    params.resource = l->resource;
    l->association++;
    l->n_lost = 0;
    memset(l->ep, 0, sizeof l->ep);
    weft_status_t st =
        weft_associate_resources(world->libraries, WEFT_OBJECT_WORKER, &params, l->worker);
    trace("library %u is associated: %s", number_of(l), weft_status_name(st));
    if (st < 0) wrong("a library is not associated: %s", weft_status_name(st));
    l->state = LIBRARY_READY;
}

/* A lease that another holds is not to be had. */
static void associate_twice(const struct library *l) {
    weft_worker_t *worker;
    weft_associate_params_t params = {.resource = l->resource};
    params.lease.am_first = 512 + 64 * l->family;
    if (weft_worker_create(world->libraries, &(weft_worker_params_t){.associated = 1}, &worker) < 0)
        wrong("no worker in associated mode");
    weft_status_t st =
        weft_associate_resources(world->libraries, WEFT_OBJECT_WORKER, &params, worker);
    if (st != WEFT_ERR_LEASE_EXHAUSTED && st != WEFT_ERR_NOT_SHAREABLE)
        wrong("a lease is taken twice: %s", weft_status_name(st));
    weft_worker_destroy(worker);
}

static void returned(weft_status_t status, void *arg) {
    struct library *l = arg;
    CALLED((uint64_t)number_of(l) << 8 | 21);
    trace("library %u is returned: %s", number_of(l), weft_status_name(status));
    if (l->returned++) wrong("a library is returned twice");
    if (status != WEFT_OK && status != WEFT_ERR_RESOURCE_LOST)
        wrong("a library is returned as %s", weft_status_name(status));
    if (has_deeds(l)) wrong("an operation of a library survives its return");
    RETURNS;
}

static void end_library(struct library *l) {
    weft_op_t op = {.done = returned, .arg = l, .deadline_ms = percent(50) ? 0 : 1 + below(20)};
    weft_status_t st = WEFT_OK;
    uint32_t how = world->settling ? 0 : below(4);
    trace("library %u ends, %u", number_of(l), how);
    l->state = LIBRARY_ENDING;
    l->returned = 0;
    if (how < 2) {
        st = weft_disassociate_resources(l->resource, l->worker, &op);
        weft_status_t after = weft_worker_flush(l->worker, NULL);
        if (after != WEFT_ERR_DISASSOCIATED && after != WEFT_ERR_RESOURCE_LOST)
            wrong("a call on a library that ended answers %s", weft_status_name(after));
    } else if (how == 2) {
        st = weft_resource_withdraw(l->resource, &op);
    } else {
        weft_resource_lose(l->resource);
    }
    if (st < 0) wrong("a library does not end: %s", weft_status_name(st));
}

/* Not in a callback. */
static void look_after(struct library *l) {
    weft_resource_info_t info;
    if (l->state != LIBRARY_ENDING || weft_resource_info(l->resource, &info) < 0 || info.n_users)
        return;
    if (has_deeds(l)) wrong("an operation of library %u is not reported", number_of(l));
    if (weft_resource_release(l->resource) < 0) wrong("a resource is used after its return");
    l->state = LIBRARY_NONE;
    if (!world->settling && !l->node->closing && percent(50)) return; /* its worker is used again */
    weft_worker_destroy(l->worker);
    l->worker = NULL;
}

/* ---- what a program does --------------------------------------------------------------------- */

void libraries_begin(void) {
    weft_context_params_t params = {.file = "/dev/null", .associated = 1};
    if (!(world->may & MAY_ASSOCIATE)) return;
    if (weft_context_create(&params, &world->libraries) < 0) wrong("no context in associated mode");
    for (uint32_t n = 0; n < NODES; n++)
        for (uint32_t f = 0; f < FAMILIES; f++)
            world->library[n][f] = (struct library){.node = &world->node[n], .family = f};
}

void library_act(void) {
    struct library *l = &world->library[below(NODES)][below(FAMILIES)];
    uint32_t what = below(100);
    if (l->node->closing) return;
    if (l->state == LIBRARY_NONE && depth == 0) associate(l);
    if (!is_ready(l)) return;
    if (what < 20)
        connect_library(l);
    else if (what < 65)
        send_payload(l);
    else if (what < 90)
        receive_payload(l);
    else if (what < 92 && depth == 0)
        associate_twice(l);
    else if (what < 96 && depth == 0)
        end_library(l);
}

static struct library *library_at(uint32_t i) {
    return &world->library[i / FAMILIES][i % FAMILIES];
}

void libraries_step(void) {
    for (uint32_t i = 0; world->libraries && i < NODES * FAMILIES; i++) {
        struct library *l = library_at(i);
        if (world->settling && is_ready(l) && !l->node->closing) end_library(l);
        look_after(l);
    }
}

bool libraries_rest(void) {
    for (uint32_t i = 0; world->libraries && i < NODES * FAMILIES; i++)
        if (library_at(i)->state != LIBRARY_NONE) return false;
    return true;
}

void libraries_end(void) {
    struct deed *next;
    for (uint32_t i = 0; world->libraries && i < NODES * FAMILIES; i++)
        if (library_at(i)->worker) weft_worker_destroy(library_at(i)->worker);
    if (world->libraries && weft_context_destroy(world->libraries) < 0)
        wrong("the libraries' context does not end");
    for (struct deed *d = world->deed; d; d = next) {
        next = d->next;
        free(d);
    }
}
