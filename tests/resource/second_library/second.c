#include "second.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The same ids and tags as the program that shares the worker. */
enum { NUMBER_ID = 1, NUMBER_TAG = 1, MARK = 0x5ec0d, IN_FLIGHT = 1024 };

struct number {
    uint32_t mark, value;
};

struct second {
    weft_context_t *context;
    weft_worker_t *worker, *own;
    weft_mem_t *own_mem; /* of `own` */
    weft_team_t *own_team;
    weft_ep_t *ep;
    struct number in, out[IN_FLIGHT]; /* `out` as long as they are sent */
    atomic_size_t in_flight;          /* its sends may end on the worker's thread */
    uint32_t even, odd;               /* expected next */
    uint32_t sent, team_ready;
    atomic_uint wrong;
    atomic_size_t received;
};

static void take(struct second *s, const struct number *n, uint32_t *expected) {
    if (n->mark != MARK || n->value != *expected) s->wrong++;
    *expected += 2;
    s->received++;
}

static void on_number(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct second *s = arg;
    if (am->len == sizeof(struct number))
        take(s, am->data, &s->even);
    else
        s->wrong++;
}

static void on_tagged(weft_status_t status, void *arg);
static void receive(struct second *s) {
    weft_iov_t iov = {&s->in, sizeof s->in};
    weft_op_t op = {.done = on_tagged, .arg = s};
    weft_status_t st;
    while ((st = weft_tag_recv(s->worker, NUMBER_TAG, ~0ull, &iov, 1, NULL, &op)) == WEFT_OK)
        take(s, &s->in, &s->odd);
    if (st < 0) s->wrong++;
}

static void on_tagged(weft_status_t status, void *arg) {
    struct second *s = arg;
    if (status != WEFT_OK) return; /* it is given back */
    take(s, &s->in, &s->odd);
    receive(s);
}

weft_status_t second_open(weft_resource_t *worker, weft_worker_t *own, struct second **second_p) {
    struct second *s = calloc(1, sizeof *s);
    weft_associate_params_t params = {.resource = worker, .abi_version = WEFT_RESOURCE_ABI};
    weft_status_t st;
    if (!s) return WEFT_ERR_NO_MEMORY;
    s->odd = 1;
    s->own = own;
    st = weft_context_create(&(weft_context_params_t){.associated = 1}, &s->context);
    if (st == WEFT_OK)
        st = weft_worker_create(s->context, &(weft_worker_params_t){.associated = 1}, &s->worker);
    if (st == WEFT_OK) st = weft_am_handler_set(s->worker, NUMBER_ID, on_number, s);
    if (st == WEFT_OK)
        st = weft_associate_resources(s->context, WEFT_OBJECT_WORKER, &params, s->worker);
    if (st < 0) return st;
    receive(s);
    *second_p = s;
    return WEFT_OK;
}

weft_status_t second_address(struct second *s, void *to, size_t *len_p) {
    return weft_worker_address(s->worker, to, len_p);
}

weft_status_t second_connect(struct second *s, const void *address, size_t len) {
    return weft_connect_address(s->worker, address, len, NULL, &s->ep);
}

static void on_sent(weft_status_t status, void *arg) {
    struct second *s = arg;
    s->in_flight--;
    s->wrong += status < 0;
}

weft_status_t second_send(struct second *s) {
    struct number *n = &s->out[s->sent % IN_FLIGHT];
    weft_iov_t iov = {n, sizeof *n};
    weft_op_t op = {.done = on_sent, .arg = s};
    weft_status_t st = WEFT_OK;
    if (s->in_flight == IN_FLIGHT) return WEFT_ERR_BUSY;
    *n = (struct number){MARK, s->sent};
    s->in_flight++;
    if (n->value & 1)
        st = weft_tag_send(s->ep, NUMBER_TAG, &iov, 1, &op);
    else
        st = weft_am_send(s->ep, NUMBER_ID, NULL, 0, &iov, 1, &op);
    if (st < 0) s->in_flight--;
    if (st < 0) return st;
    if (st != WEFT_IN_PROGRESS) s->in_flight--;
    s->sent++;
    return WEFT_OK;
}

size_t second_received(const struct second *s) {
    return s->wrong ? SIZE_MAX : s->received;
}
size_t second_sent(const struct second *s) {
    return s->sent;
}

weft_status_t second_use_region(struct second *s, weft_resource_t *memory, weft_mem_t **mem_p) {
    weft_mem_params_t params = {.rights = WEFT_MEM_ALL, .associated = 1};
    weft_status_t st = weft_mem_register(s->worker, NULL, 0, &params, mem_p);
    if (st < 0) return st;
    return weft_associate_resources(s->context, WEFT_OBJECT_MEMORY,
                                    &(weft_associate_params_t){.resource = memory}, *mem_p);
}

static void on_ready(weft_team_t *team, weft_status_t status, void *arg) {
    ((struct second *)arg)->team_ready += status == WEFT_OK;
}

weft_status_t second_use_team(struct second *s, weft_resource_t *team, weft_team_t **team_p) {
    weft_team_params_t params = {.on_ready = on_ready, .arg = s, .associated = 1};
    weft_status_t st = weft_team_create(s->worker, &params, team_p);
    if (st < 0) return st;
    return weft_associate_resources(s->context, WEFT_OBJECT_TEAM,
                                    &(weft_associate_params_t){.resource = team}, *team_p);
}

int second_team_is_ready(const struct second *s) {
    return (int)s->team_ready;
}

weft_status_t second_return(struct second *s, weft_resource_t *resource, void *object) {
    return weft_disassociate_resources(resource, object, NULL);
}

weft_status_t second_export(struct second *s, weft_resource_t **resource_p) {
    weft_resource_params_t params = {.name = "second", .share = WEFT_SHARE_PART};
    if (!s->own) return WEFT_ERR_NOT_FOUND;
    return weft_resource_export(WEFT_OBJECT_WORKER, s->own, WEFT_RESOURCE_WORKER, &params,
                                resource_p);
}

weft_status_t second_export_region(struct second *s, const char *text,
                                   weft_resource_t **resource_p) {
    weft_mem_params_t params = {.rights = WEFT_MEM_ALL};
    weft_mem_info_t info;
    weft_status_t st = weft_mem_alloc(s->own, 8192, &params, &s->own_mem);
    if (st == WEFT_OK) st = weft_mem_describe(s->own_mem, &info);
    if (st < 0) return st;
    strcpy(info.base, text);
    return weft_resource_export(WEFT_OBJECT_MEMORY, s->own_mem, WEFT_RESOURCE_MEMORY, NULL,
                                resource_p);
}

weft_status_t second_begin_team(struct second *s, const weft_exchange_t *exchange) {
    weft_team_params_t params = {.exchange = exchange, .on_ready = on_ready, .arg = s};
    return weft_team_create(s->own, &params, &s->own_team);
}

weft_status_t second_export_team(struct second *s, weft_resource_t **resource_p) {
    return weft_resource_export(WEFT_OBJECT_TEAM, s->own_team, WEFT_RESOURCE_TEAM, NULL,
                                resource_p);
}

weft_status_t second_free_region(struct second *s) {
    return weft_mem_release(s->own_mem, NULL);
}

weft_status_t second_close_team(struct second *s, weft_done_fn done, void *arg) {
    return weft_team_close(s->own_team, &(weft_op_t){.done = done, .arg = arg});
}

void second_close(struct second *s) {
    weft_worker_destroy(s->worker);
    weft_context_destroy(s->context);
    free(s);
}
