/* What a program does next. */
#include "world.h"

_Thread_local int depth;

static void close_something(void) {
    struct end *end = any_end();
    if (!may(MAY_CLOSE) || !end || percent(60)) return;
    end_close(end, percent(50) ? WEFT_CLOSE_FLUSH : WEFT_CLOSE_ABORT,
              percent(80) ? 0 : 1 + below(20));
}

static void close_a_worker(void) {
    struct node *node = any_node();
    if (may(MAY_CLOSE) && depth == 0 && node && owns(node) && node->drive == DRIVE_MAIN &&
        percent(3))
        node_close(node);
}

static void give_back(void) {
    struct node *node = any_node();
    if (node && owns(node)) am_give_back(node, false);
}

/* What may be asked at any time. */
static void look(void) {
    struct end *end = any_end();
    weft_ep_info_t info;
    weft_rma_attributes_t attributes;
    char text[300];
    weft_status_describe((weft_status_t)(1 - (int)below(31)), text, below(sizeof text));
    if (!end || !owns(end->node)) return;
    if (weft_ep_describe(end->ep, &info) < 0 && end_is_safe(end))
        wrong("an endpoint does not describe itself");
    (void)weft_ep_rma_attributes(end->ep, NULL, &attributes);
    if (weft_ep_user(end->ep) != end || weft_ep_worker(end->ep) != end->node->worker)
        wrong("whose is it?");
    if (!end->other || !end->ready || !end->other->ready || !end_is_safe(end)) return;
    weft_status_t st = weft_ep_is_connected(end->ep, end->to->address, end->to->address_len);
    if (st < 0) wrong("an endpoint is not connected: %s", weft_status_name(st));
    st = weft_ep_has_room(end->ep);
    if (st < 0) wrong("an endpoint has no lane to ask for room: %s", weft_status_name(st));
}

static void posted(void *arg) {
    struct node *node = arg;
    CALLED(14 + node->n);
    act_within();
    RETURNS;
}
static void post(void) {
    struct node *node = any_node();
    if (node && weft_worker_post(node->worker, posted, node) < 0) wrong("nothing is posted");
}

/* Weights, as of 100. */
static const struct {
    uint32_t weight;
    void (*fn)(void);
} actions[] = {
    {7, dial},           {2, listen_or_not},  {4, close_something},
    {1, close_a_worker}, {15, am_send},       {12, tag_send},
    {12, tag_recv},      {3, tag_take},       {9, stream_send},
    {8, stream_recv},    {3, stream_take},    {1, stream_listen},
    {3, field_act},      {5, grip_act},       {24, rma},
    {5, flush_or_fence}, {3, give_back},      {2, look},
    {3, post},           {2, groups_release}, {2, wait_form},
    {3, tag_chase},      {12, team_act},
};

static void cancel(void) {
    if (may(MAY_CANCEL)) ask_cancel();
}

void act(void) {
    uint32_t sum = 0, which;
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) sum += actions[i].weight;
    which = below(sum);
    if (may(MAY_ASSOCIATE) && percent(15)) return library_act();
    if (percent(6)) cancel();
    if (may(MAY_ERR) && percent(5)) err();
    if (may(MAY_KILL) && percent(1)) kill_a_socket();
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        if (which < actions[i].weight) return actions[i].fn();
        which -= actions[i].weight;
    }
}

/* A callback of the same kind at the same endpoint draws the same, so that one may lead to another
 * without an end. */
enum { MOST_WITHIN = 400 };
void act_within(void) {
    if (depth >= 2 || world->settling || world->n_asked > MOST_WITHIN || percent(65)) return;
    depth++;
    for (uint32_t n = below(3); n > 0; n--) act();
    depth--;
}
