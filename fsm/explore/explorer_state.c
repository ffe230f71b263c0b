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

/* Tries every order of the peers from `from` on; `best` is the least that was seen. */
static void keep_least(const struct live *l, const struct explore_model *model, places now,
                       unsigned from, unsigned char *best, places best_p, bool *any,
                       unsigned char *draft) {
    if (from == model->n_peers) {
        keep_as(l, model, draft, now);
        if (*any && memcmp(draft, best, stats_size(model)) >= 0) return;
        memcpy(best, draft, stats_size(model));
        memcpy(best_p, now, sizeof(places));
        *any = true;
        return;
    }
    for (unsigned i = from; i < model->n_peers; i++) {
        if (i != from && !may_swap(model, now[i], now[from])) continue;
        uint8_t x = now[from];
        now[from] = now[i], now[i] = x;
        keep_least(l, model, now, from + 1, best, best_p, any, draft);
        x = now[from], now[from] = now[i], now[i] = x;
    }
}

void live_keep(const struct live *l, const struct explore_model *model, unsigned char *kept,
               places p) {
    unsigned char draft[EXPLORE_PEERS * (EXPLORE_STRUCT + EXPLORE_LOCALS + 8 + 64) +
                        EXPLORE_MESSAGES * sizeof(struct explore_message) + 4];
    places now = {0, 1, 2, 3, 4, 5};
    bool any = false;
    memcpy(p, now, sizeof now);
    if (model->equal_peers)
        keep_least(l, model, now, 0, kept, p, &any, draft);
    else
        keep_as(l, model, kept, now);
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
