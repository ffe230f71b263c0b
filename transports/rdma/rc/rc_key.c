/* The importer's side of one-sided access: requests, uses and releases keys, and sends their
 * control messages. */
#include "rc.h"

#define OF_FSM(m)   container_of(m, struct rc_key, fsm)
#define KEY_OF(w)   container_of(w, struct rc_key, word)
#define GRANT_OF(w) container_of(w, struct rc_grant, word)
#define LANE_OF(k)  ((struct rc_lane *)(k)->key.lane)

#define FSM_NAME   rc_key
#define FSM_PREFIX RC_KEY
#include <fsm/define.h>

static void rc_key_act_ask(struct fsm *m) {
    fsm_effect(m, RC_KEY_FX_SEND_WANT);
}

static void rc_key_act_serve(struct fsm *m) {
    fsm_effect(m, RC_KEY_FX_SERVE);
}

static void rc_key_act_refuse(struct fsm *m) {
    fsm_effect(m, RC_KEY_FX_REFUSE);
}

static void rc_key_act_let_go(struct fsm *m) {
    fsm_effect(m, RC_KEY_FX_REFUSE);
    fsm_effect(m, RC_KEY_FX_SEND_DROP);
}

static void rc_key_act_close(struct fsm *m) {
    fsm_effect(m, RC_KEY_FX_SEND_DROP);
    fsm_effect(m, RC_KEY_FX_FREE);
}

static void rc_key_act_down(struct fsm *m) {
    fsm_effect(m, RC_KEY_FX_DOWN);
}

static void rc_key_act_gone(struct fsm *m) {
    fsm_effect(m, RC_KEY_FX_FREE);
}

/* ---- words that wait for room ---------------------------------------------------------------- */

static bool is_of_key(const struct queued_word *word) {
    return word->kind == RC_WANT || word->kind == RC_DROP;
}

/* A DROP waits for the gets before it, so that the owner may give the memory away when it learns
 * it. */
static bool send_now(struct rc_lane *lane, struct queued_word *word) {
    uint8_t bytes[RC_WANT_SIZE];
    enum rc_message kind = (enum rc_message)word->kind;
    if (kind == RC_GRANT) weft__rc_grant_bind(lane, GRANT_OF(word));
    size_t len = is_of_key(word) ? weft__rc_key_word(KEY_OF(word), bytes)
                                 : weft__rc_grant_word(GRANT_OF(word), bytes);
    return weft__rc_post_word(lane, kind, bytes, len, kind == RC_DROP, RC_PLAIN);
}

/* Messages leave room for two requests at least, besides the goodbye and the marker. */
void weft__rc_words_flush(struct rc_lane *lane) {
    struct queued_word *word;
    while (lane->qp && (word = lane->words.first) != NULL && rc_has_room(lane, 4) &&
           send_now(lane, word)) {
        words_remove(&lane->words, word);
        if (is_of_key(word))
            weft__rc_key_sent(lane, KEY_OF(word));
        else
            weft__rc_grant_sent(lane, GRANT_OF(word));
    }
}

void weft__rc_send(struct rc_lane *lane, struct queued_word *word, enum rc_message kind) {
    word->kind = (uint8_t)kind;
    words_add(&lane->words, word);
    weft__rc_lane_todo(lane, RC_TODO_RETRY);
}

/* ---- effects --------------------------------------------------------------------------------- */

static void decided(struct rc_key *key) {
    key->key.awaited = false;
    weft__rc_lane_todo(LANE_OF(key), RC_TODO_KEYED);
}

/* Where the processor performs atomics as well, a device may only if the two are atomic with
 * each other. */
static void serve_key(struct rc_key *key) {
    const struct remote_region *region = &key->key.region;
    uint32_t caps = key->key.lane->iface->attr.caps & (CAP_PUT | CAP_GET | CAP_ATOMIC_DEVICE);
    if (!rc_device_may(region->rights, key->theirs)) caps &= ~(uint32_t)CAP_ATOMIC_DEVICE;
    key->key.status = WEFT_OK;
    key->key.how = "rdma";
    key->key.caps = rights_caps(region->rights, caps);
    decided(key);
}

static void refuse_key(struct rc_key *key) {
    key_refuse(&key->key, key->why);
    decided(key);
}

static void key_free(struct rc_key *key) {
    *key->at = key->next;
    if (key->next) key->next->at = key->at;
    key->at = NULL;
    if (!key->word.queued) weft__free_later(key->key.lane->iface->reactor, key);
}

/* If it stayed only for that, it goes. */
void weft__rc_key_sent(struct rc_lane *lane, struct rc_key *key) {
    if (!key->at) weft__free_later(rc_reactor(lane), key);
}

static void on_effect(struct fsm *m, unsigned effect) {
    struct rc_key *key = OF_FSM(m);
    switch ((enum rc_key_effect)effect) {
    case RC_KEY_FX_SEND_WANT: weft__rc_send(LANE_OF(key), &key->word, RC_WANT); break;
    case RC_KEY_FX_SEND_DROP: weft__rc_send(LANE_OF(key), &key->word, RC_DROP); break;
    case RC_KEY_FX_SERVE: serve_key(key); break;
    case RC_KEY_FX_REFUSE: refuse_key(key); break;
    case RC_KEY_FX_DOWN:
        key->key.status = key->why;
        key->key.caps = 0;
        key->key.awaited = false; /* its link learns of the lane's end itself */
        break;
    case RC_KEY_FX_FREE: key_free(key); break;
    case RC_KEY_N_EFFECTS: break;
    }
}

static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct rc_lane *lane = LANE_OF(OF_FSM(m));
    weft__log_limited(rc_context(lane), WEFT_LOG_WARN, "rdma", "key %u: unexpected %s (%s)", m->id,
                      m->port->machine->event_name[event], fsm_state_name(m));
    weft__rc_lane_fault(lane, why);
}

static const struct fsm_port port = {&weft__rc_key_machine, on_effect, on_fail};

/* ---- asking ---------------------------------------------------------------------------------- */

size_t weft__rc_key_word(const struct rc_key *key, void *to) {
    const struct remote_region *r = &key->key.region;
    if (key->word.kind == RC_DROP) {
        weft__rc_word_encode(&(struct rc_word){key->serial, 0}, to);
        return RC_WORD_SIZE;
    }
    struct rc_want want = {key->serial, r->id, r->epoch, r->rights, r->base, r->len, {0}};
    memcpy(want.token, r->token, sizeof want.token);
    weft__rc_want_encode(&want, to);
    return RC_WANT_SIZE;
}

static void ask_on(struct rc_lane *lane) {
    while (lane->n_asked < RC_ASKS && lane->waiting.first) {
        struct rc_key *key = KEY_OF(lane->waiting.first);
        words_remove(&lane->waiting, &key->word);
        lane->n_asked++;
        weft__fsm_step(&key->fsm, RC_KEY_EV_ASK);
    }
}

weft_status_t weft__rc_key_open(struct lane *l, const struct remote_region *region,
                                const void *packed, size_t len, struct lane_key **key_p) {
    struct rc_lane *lane = rc_lane(l);
    enum rc_atomics theirs;
    if (!key_is_askable(region) || weft__rc_key_atomics_decode(packed, len, &theirs) < 0)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "rdma: the key is malformed");
    struct rc_key *key = weft__new(rc_iface_of(lane), struct rc_key);
    if (!key) return WEFT_ERR_NO_MEMORY;
    key->key = (struct lane_key){
        .lane = l, .region = *region, .status = WEFT_NO_RESOURCE, .how = "asked for"};
    key->key.awaited = true;
    key->theirs = theirs;
    key->serial = ++lane->last_serial;
    key->next = lane->keys;
    key->at = &lane->keys;
    if (key->next) key->next->at = &key->next;
    lane->keys = key;
    fsm_init(&key->fsm, &port, RC_KEY_WAITING, key->serial);
    words_add(&lane->waiting, &key->word);
    ask_on(lane);
    *key_p = &key->key;
    return WEFT_OK;
}

void weft__rc_key_close(struct lane_key *k) {
    struct rc_key *key = (struct rc_key *)k;
    words_remove(&LANE_OF(key)->waiting, &key->word);
    weft__fsm_step(&key->fsm, RC_KEY_EV_CLOSE);
}

/* The lane sends no more; the keys stay until they are closed, or the lane is. */
void weft__rc_keys_end(struct rc_lane *lane, weft_status_t status) {
    while (lane->waiting.first) words_remove(&lane->waiting, lane->waiting.first);
    for (struct queued_word *word = lane->words.first, *next; word; word = next) {
        next = word->next;
        if (!is_of_key(word)) continue;
        words_remove(&lane->words, word);
        if (word->kind == RC_DROP) weft__rc_key_sent(lane, KEY_OF(word));
    }
    for (struct rc_key *key = lane->keys, *next; key; key = next) {
        next = key->next;
        key->why = status;
        weft__fsm_step(&key->fsm, RC_KEY_EV_LOST);
    }
}

void weft__rc_keys_free(struct rc_lane *lane) {
    while (lane->keys) {
        struct rc_key *key = lane->keys;
        lane->keys = key->next;
        weft__free_later(rc_reactor(lane), key);
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

static weft_status_t status_of(uint32_t value) {
    return value >= 1 && value <= -WEFT_STATUS_LAST ? (weft_status_t) - (int)value
                                                    : WEFT_ERR_PROTOCOL;
}

void weft__rc_key_received(struct rc_lane *lane, enum rc_message kind, const struct rc_word *word) {
    struct rc_key *key = lane->keys;
    while (key && key->serial != word->serial) key = key->next;
    if (!key) {
        /* A REVOKE and our DROP may pass each other; an answer to nothing is none. */
        if (kind != RC_REVOKE || word->serial > lane->last_serial)
            weft__rc_lane_bad(lane, WEFT_ERR_PROTOCOL, "that was not asked for");
        return;
    }
    if (kind == RC_GRANT) key->rkey = word->value;
    if (kind == RC_DENY) key->why = status_of(word->value);
    if (kind == RC_REVOKE) key->why = WEFT_ERR_REVOKED;
    weft__fsm_step(&key->fsm, kind == RC_GRANT  ? RC_KEY_EV_GRANT
                              : kind == RC_DENY ? RC_KEY_EV_DENY
                                                : RC_KEY_EV_REVOKE);
    if (kind == RC_REVOKE) return;
    lane->n_asked--;
    ask_on(lane);
}
