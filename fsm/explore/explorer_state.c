/* Loads, stores and compares the state of all peers as flat bytes. */
#include "explorer_state.h"

#include <string.h>

static size_t peer_size(const struct explore_role *role) {
    return role->size + role->n_locals + sizeof(uint64_t) + role->machine->n_effects;
}

static size_t message_size(const struct explore_model *model) {
    return offsetof(struct explore_message, payload) +
           (model->payload ? model->payload : EXPLORE_PAYLOAD);
}

size_t stats_size(const struct explore_model *model) {
    size_t size = 4; /* losses, repeats, out, n_messages */
    for (unsigned i = 0; i < model->n_peers; i++) size += peer_size(model->role[i]);
    return size + live_room(model) * message_size(model);
}

/* Pointers and names are the same in every state that is kept: they are put back on load. */
static unsigned char *keep_peer(const struct live *l, const struct explore_role *role, unsigned i,
                                unsigned char *at) {
    struct fsm head;
    memcpy(at, l->world.peer[i], role->size);
    memset(&head, 0, sizeof head);
    head.held = l->world.peer[i]->held;
    head.state = l->world.peer[i]->state;
    memcpy(at, &head, sizeof head);
    at += role->size;
    memcpy(at, l->used[i], role->n_locals);
    at += role->n_locals;
    memcpy(at, &l->armed[i], sizeof l->armed[i]);
    at += sizeof l->armed[i];
    memcpy(at, l->world.notified[i], role->machine->n_effects);
    return at + role->machine->n_effects;
}

static int by_pair(const struct explore_message *a, const struct explore_message *b) {
    int ka = a->to * EXPLORE_PEERS + a->from, kb = b->to * EXPLORE_PEERS + b->from;
    return ka - kb;
}

/* Queues keep their order; where order means nothing, messages are sorted by what they say too. */
static void sort_messages(struct explore_message *m, unsigned n, bool by_content) {
    for (unsigned i = 1; i < n; i++) {
        struct explore_message x = m[i];
        unsigned j = i;
        for (; j > 0; j--) {
            int order = by_pair(&x, &m[j - 1]);
            if (order == 0 && by_content) order = memcmp(&x, &m[j - 1], sizeof x);
            if (order >= 0) break;
            m[j] = m[j - 1];
        }
        m[j] = x;
    }
}

static void keep_as(const struct live *l, const struct explore_model *model, unsigned char *kept,
                    const places p) {
    const struct explore_world *w = &l->world;
    struct explore_message sorted[EXPLORE_MESSAGES];
    uint8_t place_of[EXPLORE_PEERS], out = 0;
    unsigned char *at = kept;
    for (unsigned i = 0; i < model->n_peers; i++) {
        at = keep_peer(l, model->role[i], p[i], at);
        place_of[p[i]] = i;
        out |= (w->out >> p[i] & 1) << i;
    }
    *at++ = l->losses;
    *at++ = l->repeats;
    *at++ = out;
    *at++ = w->n_messages;
    memset(sorted, 0, sizeof sorted);
    memcpy(sorted, w->message, w->n_messages * sizeof *sorted);
    for (unsigned i = 0; i < w->n_messages; i++) {
        sorted[i].from = place_of[sorted[i].from];
        sorted[i].to = place_of[sorted[i].to];
    }
    sort_messages(sorted, w->n_messages, model->channel.soup || model->channel.reorder);
    for (unsigned i = 0; i < live_room(model); i++, at += message_size(model))
        memcpy(at, &sorted[i], message_size(model));
}

static bool may_swap(const struct explore_model *model, unsigned a, unsigned b) {
    return model->equal_peers && model->role[a] == model->role[b] &&
           (model->hostile >> a & 1) == (model->hostile >> b & 1);
}

/* The search for the order of the peers that is kept as the least bytes. */
struct order_search {
    const struct live *l;
    const struct explore_model *model;
    places now;
    bool any;             /* one was kept */
    unsigned char *least; /* so far, and its order */
    uint8_t *least_places;
    unsigned char draft[EXPLORE_PEERS * (EXPLORE_STRUCT + EXPLORE_LOCALS + 8 + 64) +
                        EXPLORE_MESSAGES * sizeof(struct explore_message) + 4];
};

static void keep_if_least(struct order_search *s) {
    size_t size = stats_size(s->model);
    keep_as(s->l, s->model, s->draft, s->now);
    if (s->any && memcmp(s->draft, s->least, size) >= 0) return;
    memcpy(s->least, s->draft, size);
    memcpy(s->least_places, s->now, sizeof(places));
    s->any = true;
}

/* Tries every order of the peers from `from` on. */
static void search_least(struct order_search *s, unsigned from) {
    if (from == s->model->n_peers) {
        keep_if_least(s);
        return;
    }
    for (unsigned i = from; i < s->model->n_peers; i++) {
        if (i != from && !may_swap(s->model, s->now[i], s->now[from])) continue;
        uint8_t x = s->now[from];
        s->now[from] = s->now[i], s->now[i] = x;
        search_least(s, from + 1);
        x = s->now[from], s->now[from] = s->now[i], s->now[i] = x;
    }
}

void live_keep(const struct live *l, const struct explore_model *model, unsigned char *kept,
               places p) {
    struct order_search search = {.l = l, .model = model, .least = kept, .least_places = p};
    const places as_is = {0, 1, 2, 3, 4, 5};
    memcpy(search.now, as_is, sizeof as_is);
    memcpy(p, as_is, sizeof as_is);
    if (model->equal_peers)
        search_least(&search, 0);
    else
        keep_as(l, model, kept, search.now);
}

void stats_load(struct live *l, const struct explore_model *model, const struct fsm_port *ports,
                const unsigned char *kept) {
    memset(l, 0, sizeof *l);
    struct explore_world *w = &l->world;
    w->n_peers = model->n_peers;
    w->hostile = model->hostile;
    for (unsigned i = 0; i < model->n_peers; i++) {
        const struct explore_role *role = model->role[i];
        w->peer[i] = (struct fsm *)(void *)l->memory[i].bytes;
        memcpy(w->peer[i], kept, role->size);
        w->peer[i]->port = &ports[i];
        w->peer[i]->id = i;
        kept += role->size;
        memcpy(l->used[i], kept, role->n_locals);
        kept += role->n_locals;
        memcpy(&l->armed[i], kept, sizeof l->armed[i]);
        kept += sizeof l->armed[i];
        memcpy(w->notified[i], kept, role->machine->n_effects);
        kept += role->machine->n_effects;
    }
    l->losses = *kept++;
    l->repeats = *kept++;
    w->out = *kept++;
    w->n_messages = *kept++;
    for (unsigned i = 0; i < live_room(model); i++, kept += message_size(model))
        memcpy(&w->message[i], kept, message_size(model));
}
