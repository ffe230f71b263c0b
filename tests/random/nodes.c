/* Workers: with which settings, on which thread, what memory they expose, and their end. */
#include <arpa/inet.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "../sockets.h"
#include "world.h"

/* ---- threads --------------------------------------------------------------------------------- */

_Thread_local unsigned here;

bool owns(const struct node *node) {
    return node->owner == here;
}
bool may_post(const struct node *node) {
    return owns(node) || node->mode == WEFT_THREAD_MULTIPLE;
}

static void on_start(void *arg) {
    here = OF_NODES + ((struct node *)arg)->n;
}

static void start_thread(struct node *node) {
    weft_thread_params_t params = {.on_start = on_start, .arg = node};
    node->drive = percent(60) ? DRIVE_THREAD : DRIVE_POLLED;
    node->owner = node->drive == DRIVE_THREAD ? OF_NODES + node->n : THREADS;
    node->was_polled |= node->drive == DRIVE_POLLED;
    params.callbacks =
        node->drive == DRIVE_POLLED ? WEFT_CALLBACKS_POLLED : WEFT_CALLBACKS_ON_THREAD;
    weft_status_t st = weft_worker_start_thread(node->worker, &params);
    trace("node %u is driven by %s", node->n,
          node->drive == DRIVE_THREAD ? "a thread" : "a thread, and polled");
    if (st < 0) wrong("no thread: %s", weft_status_name(st));
}

struct node *any_node(void) {
    for (int i = 0; i < 4; i++) {
        struct node *node = &world->node[below(NODES)];
        if (!node->closing && may_post(node)) return node;
    }
    return NULL;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static void limit_add(size_t size) {
    if (size && size < LARGEST && world->n_limits < LIMITS) world->limit[world->n_limits++] = size;
}

void limits_find(struct node *node) {
    weft_transport_info_t transport;
    weft_protocol_info_t protocol;
    for (size_t t = 0; weft_worker_transport(node->worker, t, &transport) == WEFT_OK; t++) {
        limit_add(transport.max_short);
        limit_add(transport.max_bcopy);
        limit_add(transport.max_zcopy);
        for (size_t i = 0; weft_worker_protocol(node->worker, t, i, &protocol) == WEFT_OK; i++)
            limit_add(protocol.from);
    }
}

/* Usually small; sometimes just about a size at which the library goes another way; rarely
 * large. */
size_t a_size(void) {
    static const size_t limit[] = {41, 600, 10000, 70000, 300000, LARGEST};
    uint32_t which = below(100);
    if (which < 25 && world->n_limits) {
        size_t size = world->limit[below(world->n_limits)] + 8 - below(17);
        return size < LARGEST ? size : 0;
    }
    return below(limit[which < 50   ? 0
                       : which < 75 ? 1
                       : which < 90 ? 2
                       : which < 97 ? 3
                       : which < 99 ? 4
                                    : 5]);
}

/* ---- exposed memory -------------------------------------------------------------------------- */

struct room *room_of(struct node *node) {
    uint32_t i = below(2);
    struct room *room = &node->in_flight[i];
    if (percent(70)) return NULL;
    if (room->base || !owns(node) || node->closing) return room->base ? room : NULL;
    weft_mem_info_t info;
    weft_mem_params_t params = {.rights = percent(70) ? WEFT_MEM_ALL : WEFT_MEM_READ,
                                .expose = percent(85)};
    weft_status_t st = weft_mem_alloc(node->worker, 2 * LARGEST, &params, &node->in_flight_mem[i]);
    if (st < 0 || weft_mem_describe(node->in_flight_mem[i], &info) < 0)
        wrong("no memory: %s", weft_status_name(st));
    *room = (struct room){.base = info.base, .len = info.len};
    return room;
}

/* ---- begin ----------------------------------------------------------------------------------- */

/* The connection of one of its endpoints has moved. */
static void on_lane(weft_ep_t *ep, void *arg) {
    const struct node *node = arg;
    weft_ep_info_t info;
    if (weft_ep_describe(ep, &info) < 0 || weft_ep_worker(ep) != node->worker)
        wrong("an endpoint that has moved does not describe itself");
}

static void node_begin(struct node *node) {
    bool threads = world->may & MAY_THREAD;
    node->n = (uint32_t)(node - world->node);
    node->mode = (weft_thread_mode_t)(threads && percent(70) ? WEFT_THREAD_MULTIPLE : below(3));
    weft_worker_params_t params = {.thread_mode = node->mode,
                                   .transports = world->transports,
                                   .on_endpoint = on_endpoint,
                                   .on_error = on_error,
                                   .on_lane = on_lane,
                                   .arg = node};
    weft_status_t st = weft_worker_create(world->context, &params, &node->worker);
    if (st < 0) wrong("no worker: %s", weft_status_name(st));
    am_begin(node);
    node->address_len = sizeof node->address;
    st = weft_worker_address(node->worker, node->address, &node->address_len);
    if (st < 0) wrong("no address: %s", weft_status_name(st));
    limits_find(node);
}

static void on_log(weft_log_level_t level, const char *room, const char *line, void *arg) {
    trace("%s: %s", room, line);
    if (level == WEFT_LOG_ERROR && !world->may) wrong("%s: %s", room, line);
}

void nodes_begin(void) {
    bool quick = percent(60);
    weft_setting_t settings[] = {
        {"calibration", percent(80) ? "off" : "auto"},
        {"log.level", "error"},
        {"close.timeout", world->may ? "300ms" : "20s"},
        {"rendezvous.threshold", percent(40)   ? "8k"
                                 : percent(50) ? "64k"
                                               : "auto"},
        {"stream.window", percent(40)   ? "4k"
                          : percent(50) ? "64k"
                                        : "1m"},
        {"tag.unexpected_bytes", percent(30) ? "20000" : "16m"},
        {"shm.copy", percent(50) ? "staged" : "auto"},
        {"shm.rma", percent(50)   ? "auto"
                    : percent(30) ? "vm"
                                  : "message"},
        {"shm.rings", percent(50)   ? "64"
                      : percent(50) ? "1"
                                    : "0"},
        {"rma.max_keys", percent(70)   ? "1024"
                         : percent(50) ? "1"
                                       : "0"},
        {"link.rails", percent(80) ? "1" : "2"},
        {"link.linger", percent(50) ? "200ms" : "1ms"},
        {"lanes.tick", quick ? "1ms" : "100ms"},
        {"lanes.min_rate", quick ? "1" : "4m"},
        {"lanes.min_hold", quick ? "2ms" : "2s"},
        {"lanes.backoff", quick ? "2ms" : "500ms"},
        /* on a busy machine, or by a clock that is fast, a lane may be away for long */
        {"failover.timeout", world->may & MAY_KILL ? "20s" : "1s"},
        {"team.timeout", world->may & (MAY_CLOSE | MAY_KILL) ? "2s" : "20s"},
        {"coll.timeout", world->may & MAY_KILL ? "2s" : "300s"},
        {"coll.slot", percent(60)   ? "8k"
                      : percent(50) ? "64"
                                    : "0"},
        {"coll.eager", percent(60) ? "16k" : "256"},
        {"coll.segment", percent(60) ? "64k" : "4k"},
    };
    weft_context_params_t params = {.settings = settings,
                                    .n_settings = sizeof settings / sizeof *settings,
                                    .file = "/dev/null",
                                    .log = on_log};
    weft_status_t st = weft_context_create(&params, &world->context);
    if (st < 0) wrong("no context: %s", weft_status_name(st));
    for (struct node *node = world->node; node < world->node + NODES; node++) node_begin(node);
    for (struct node *node = world->node; node < world->node + NODES; node++)
        if (world->may & MAY_THREAD && node->mode == WEFT_THREAD_MULTIPLE && percent(70))
            start_thread(node);
}

/* ---- what breaks ----------------------------------------------------------------------------- */

/* One end of a connection of this process. What survives is not harmed by it, once it is there. */
void kill_a_socket(void) {
    if (!strstr(world->transports, "tcp")) return;
    world->killed = true;
    for (uint32_t i = 0; i < world->n_ends; i++) {
        struct end *end = &world->end[i];
        bool is_there = end->ready && end->other && end->other->ready;
        end->hurried |= !is_there || !(end->survives || end->other->survives);
    }
    if (kill_one(below(1 << 16))) trace("a socket dies");
}

/* ---- the end --------------------------------------------------------------------------------- */

/* What belongs to the worker is gone with it. */
static void gone(weft_status_t status, void *arg) {
    struct node *node = arg;
    CALLED((uint64_t)node->n << 8 | 10);
    trace("node %u is gone", node->n);
    if (node->gone) wrong("node %u was gone twice", node->n);
    node->gone = true;
    for (uint32_t i = 0; i < world->n_ends; i++) {
        struct end *end = &world->end[i];
        if (end->node != node || end->state == END_CLOSED) continue;
        if (end->state == END_CLOSING) wrong("end %u closed less than its worker", end->n);
        end->state = END_CLOSED;
        end->ep = NULL;
    }
    for (struct asked *a = world->asked; a; a = a->next) {
        if (a->node == node && a->accepted && a->op_p && !a->group && !a->notified)
            wrong("operation %u survives its worker", a->n);
        if (a->node != node || !a->shape.room) continue;
        /* an operation that shares a completion may be reported later, and has nothing to look
         * at */
        a->shape.block = NULL;
        a->then = NULL;
    }
    teams_gone(node);
    node->worker = NULL;
    RETURNS;
}

void node_close(struct node *node) {
    am_give_back(node, percent(50));
    node->closing = true;
    node->listener = NULL;
    weft_status_t st = weft_worker_close(node->worker, &(weft_op_t){.done = gone, .arg = node});
    if (st != WEFT_IN_PROGRESS) wrong("a worker does not close: %s", weft_status_name(st));
    if (weft_worker_close(node->worker, NULL) != WEFT_ERR_BUSY) wrong("a worker closes twice");
    if (weft_context_destroy(world->context) != WEFT_ERR_BUSY)
        wrong("a context is gone before its workers");
}
