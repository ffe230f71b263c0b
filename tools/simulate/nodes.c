/*
 * Workers: their birth, their memory that peers write to, and their end in good order or without a
 * word.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"
#include <endpoints/worker/drive.h>

enum { COUNTERS = 64, MIN_SLOTS = 8, PRISTINE = 0xa5 };

/* ---- the region: guard, counters, guard, bytes to read, guard, slots with a guard behind each  */

static uint32_t offset_static(void) {
    return GUARD + COUNTERS + GUARD;
}
static uint32_t offset_slot(uint32_t slot) {
    return offset_static() + STATIC + GUARD + slot * (SLOT + GUARD);
}

uint64_t node_slot(const struct node *node, uint32_t slot) {
    return (uint64_t)(uintptr_t)(node->region + offset_slot(slot));
}

uint64_t node_static(const struct node *node) {
    return (uint64_t)(uintptr_t)(node->region + offset_static());
}
uint64_t node_counter(const struct node *node, uint32_t which) {
    return (uint64_t)(uintptr_t)(node->region + GUARD + 8 * which);
}

static void region_fill(const struct world *w, uint8_t *region, uint32_t len) {
    memset(region, PRISTINE, len);
    memset(region + GUARD, 0, COUNTERS);
    memcpy(region + offset_static(), arena_pattern + w->plan->seed % PATTERN, STATIC);
}

static void region_begin(struct node *node) {
    struct world *w = node->world;
    size_t key_len = sizeof node->key;
    uint32_t mine = MIN_SLOTS;
    for (uint32_t i = 0; i < w->n_pairs; i++)
        mine += 3 * (w->pair[i].from == node->index || w->pair[i].to == node->index);
    node->n_slots = 0;
    node->region_len = offset_slot(mine);
    node->region = arena_alloc(node->region_len);
    region_fill(w, node->region, node->region_len);
    node->fetched_room = 4096;
    node->fetched = arena_alloc(node->fetched_room);
    weft_mem_params_t params = {.rights = WEFT_MEM_ALL};
    weft_status_t st =
        weft_mem_register(node->worker, node->region, node->region_len, &params, &node->mem);
    if (st == WEFT_OK) st = weft_mem_pack(node->mem, node->key, &key_len);
    if (st < 0) world_fail(w, "no region: %s", weft_status_name(st));
    node->key_len = key_len;
}

/* What the puts that were reported left in their slots; others of those may have come in part. */
static void put_check(struct node *node, const struct half *half, uint8_t *expected) {
    uint32_t from = offset_slot(half->slot);
    if (from + SLOT > node->region_len) return;
    if (half->put_unsure || half->put_pending)
        memcpy(expected + from, node->region + from, SLOT);
    else
        memcpy(expected + from, half->put_image, SLOT);
}

static void check_count(struct node *node, const char *of_what, uint64_t count, uint64_t least,
                        uint64_t most) {
    if (count < least || count > most)
        world_fail(node->world,
                   "worker %u counts %" PRIu64 " %s, and %" PRIu64 " to %" PRIu64 " were made",
                   node->index, count, of_what, least, most);
}

void node_check(struct node *node) {
    struct world *w = node->world;
    uint8_t *expected = malloc(node->region_len);
    uint64_t count[2];
    if (!expected) abort();
    region_fill(w, expected, node->region_len);
    memcpy(expected + GUARD, node->region + GUARD, sizeof count);
    for (uint32_t i = 0; i < w->n_connections; i++)
        for (int side = 0; side < 2; side++) {
            const struct half *half = &w->connection[i]->half[side];
            if (half->other->node == node && half->n_puts) put_check(node, half, expected);
        }
    for (uint32_t i = 0; i < node->region_len; i++)
        if (expected[i] != node->region[i]) {
            world_fail(w, "byte %u of worker %u's region is %02x, not %02x", i, node->index,
                       node->region[i], expected[i]);
            break;
        }
    free(expected);
    memcpy(count, node->region + GUARD, sizeof count);
    check_count(node, "additions", count[0], node->added_surely,
                node->added_surely + node->added_maybe);
    check_count(node, "fetched additions", count[1], node->fetched_surely,
                node->fetched_surely + node->fetched_maybe);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void on_endpoint(weft_ep_t *ep, void *arg) {
    weft_ep_set_user(ep, NULL); /* until it says who it is */
}

/* Of endpoints that peers opened. */
static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct half *half = weft_ep_user(ep);
    if (half)
        half_lost(half, status);
    else
        weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL);
}

static void learn_numbers(struct node *node) {
    static const char *const name[] = {"sim", "simfast"};
    for (int i = 0; i < 2; i++) {
        struct iface *iface = weft__worker_iface(node->worker, name[i], strlen(name[i]));
        uint8_t address[96];
        size_t len = sizeof address;
        if (iface && iface->ops->address(iface, address, &len) == WEFT_OK)
            node->number[i] = weft__sim_node_of(address, len);
    }
}

void node_begin(struct world *w, uint32_t index) {
    struct node *node = arena_alloc(sizeof *node);
    node->world = w;
    node->index = index;
    node->next = w->nodes;
    w->nodes = w->node[index] = node;
    weft_worker_params_t params = {.transports = w->plan->two_ways ? "sim,simfast" : "sim",
                                   .on_endpoint = on_endpoint,
                                   .on_error = on_error,
                                   .arg = node};
    weft_status_t st = weft__reactor_create(
        w->context, &(struct reactor_params){.virtual_clock = w->clock}, &node->reactor);
    if (st == WEFT_OK) st = weft__worker_create_on(node->reactor, &params, &node->worker);
    if (st == WEFT_OK) st = weft_am_handler_set(node->worker, AM_WHO, on_who, node);
    if (st == WEFT_OK) st = weft_am_handler_set(node->worker, AM_DATA, on_message, node);
    if (st < 0) {
        world_fail(w, "worker %u cannot begin: %s", index, weft_status_name(st));
        return;
    }
    learn_numbers(node);
    region_begin(node);
    if (w->plan->exposes) exposed_begin(node);
    world_trace(w, "worker %u begins", index);
}

static void closed(weft_status_t status, void *arg) {
    struct node *node = arg;
    if (!node->worker) world_fail(node->world, "a worker's end was reported twice");
    node->worker = NULL;
    world_trace(node->world, "worker %u is gone", node->index);
}

/* Its operations end, and its callbacks come; but nothing that it sends is received any more. */
void node_close(struct node *node) {
    if (node->closing || !node->worker) return;
    node->closing = true;
    weft_status_t st = weft_worker_close(node->worker, &(weft_op_t){.done = closed, .arg = node});
    if (st != WEFT_IN_PROGRESS)
        world_fail(node->world, "a worker's close: %s", weft_status_name(st));
}

void node_crash(struct node *node) {
    struct world *w = node->world;
    if (node->crashed || node->closing) return;
    node->crashed = true;
    world_trace(w, "worker %u crashes", node->index);
    for (int i = 0; i < 2; i++)
        if (w->fabric[i]) weft__sim_crash(w->fabric[i], node->number[i]);
    node_close(node);
}
