/* Encoders and decoders of the control messages about lanes. */
#include "lane_ctrl.h"

#include "codec.h"

static struct cursor sending(struct wire_message *m, enum lane_kind kind, uint32_t epoch) {
    struct cursor c = writing(m, WIRE_LANE);
    put(&c, kind, 1);
    put(&c, epoch, 4);
    return c;
}

static struct cursor receiving(const void *p, size_t len, uint32_t *epoch_p) {
    struct cursor c = reading(p, len);
    (void)get(&c, 1);
    *epoch_p = (uint32_t)get(&c, 4);
    return c;
}

static void put_bytes(struct cursor *c, const void *bytes, uint8_t len) {
    put(c, len, 1);
    memcpy(c->at, bytes, len);
    c->at += len;
}

/* NULL: they are not all there, or too many. */
static const void *get_bytes(struct cursor *c, uint8_t *len_p, uint8_t most) {
    uint8_t len = (uint8_t)get(c, 1);
    const void *bytes = c->at;
    if (!c->at || len > most || c->left < len) {
        *c = (struct cursor){0};
        return NULL;
    }
    c->at += len;
    c->left -= len;
    *len_p = len;
    return bytes;
}

void weft__lane_ask(struct wire_message *m, const struct lane_ask *v) {
    struct cursor c = sending(m, LANE_ASK, v->epoch);
    put(&c, v->score, 8);
    put_bytes(&c, v->name, v->name_len);
    put_bytes(&c, v->address, v->len);
    written(m, &c);
}

bool weft__lane_read_ask(const void *p, size_t len, struct lane_ask *v) {
    struct cursor c = receiving(p, len, &v->epoch);
    v->score = get(&c, 8);
    v->name = get_bytes(&c, &v->name_len, LANE_NAME_MAX);
    v->address = get_bytes(&c, &v->len, LANE_ADDRESS_MAX);
    return read_all(&c) && v->epoch != 0 && v->name_len > 0;
}

void weft__lane_grant(struct wire_message *m, const struct lane_grant *v) {
    struct cursor c = sending(m, LANE_GRANT, v->epoch);
    put(&c, v->number, 4);
    put_bytes(&c, v->address, v->len);
    written(m, &c);
}

bool weft__lane_read_grant(const void *p, size_t len, struct lane_grant *v) {
    struct cursor c = receiving(p, len, &v->epoch);
    v->number = (uint32_t)get(&c, 4);
    v->address = get_bytes(&c, &v->len, LANE_ADDRESS_MAX);
    return read_all(&c) && v->epoch != 0 && v->number != 0;
}

void weft__lane_deny(struct wire_message *m, struct lane_deny v) {
    struct cursor c = sending(m, LANE_DENY, v.epoch);
    put(&c, v.why, 1);
    put(&c, v.wait_ms, 4);
    written(m, &c);
}

bool weft__lane_read_deny(const void *p, size_t len, struct lane_deny *v) {
    struct cursor c = receiving(p, len, &v->epoch);
    v->why = (uint8_t)get(&c, 1);
    v->wait_ms = (uint32_t)get(&c, 4);
    return read_all(&c) && v->epoch != 0 && v->why > 0 && v->why < LANE_DENIALS;
}

void weft__lane_score(struct wire_message *m, struct lane_score v) {
    struct cursor c = sending(m, LANE_SCORE, v.epoch);
    put(&c, v.score, 8);
    written(m, &c);
}

bool weft__lane_read_score(const void *p, size_t len, struct lane_score *v) {
    struct cursor c = receiving(p, len, &v->epoch);
    v->score = get(&c, 8);
    return read_all(&c) && v->epoch != 0;
}

void weft__lane_count(struct wire_message *m, enum lane_kind kind, uint64_t count) {
    struct cursor c = sending(m, kind, 0);
    put(&c, count, 8);
    written(m, &c);
}

bool weft__lane_read_count(const void *p, size_t len, struct lane_count *v) {
    struct cursor c = receiving(p, len, &v->epoch);
    v->count = get(&c, 8);
    return read_all(&c) && v->epoch == 0;
}

void weft__lane_process(struct wire_message *m, struct lane_process v) {
    struct cursor c = sending(m, LANE_PROCESS, 0);
    put(&c, v.host, 8);
    put(&c, v.pid, 4);
    written(m, &c);
}

/* A pid is positive: what follows is asked about one process, and never about a group. */
bool weft__lane_read_process(const void *p, size_t len, struct lane_process *v) {
    struct cursor c = receiving(p, len, &v->epoch);
    v->host = get(&c, 8);
    v->pid = (uint32_t)get(&c, 4);
    return read_all(&c) && v->epoch == 0 && v->pid > 0 && v->pid <= INT32_MAX;
}

void weft__lane_one(struct wire_message *m, enum lane_kind kind, uint32_t epoch) {
    struct cursor c = sending(m, kind, epoch);
    written(m, &c);
}

bool weft__lane_read_one(const void *p, size_t len, struct lane_one *v) {
    struct cursor c = receiving(p, len, &v->epoch);
    return read_all(&c) && v->epoch != 0;
}

void weft__lane_end(struct wire_message *m, struct lane_end v) {
    struct cursor c = sending(m, LANE_END, v.epoch);
    put(&c, v.sent, 8);
    written(m, &c);
}

bool weft__lane_read_end(const void *p, size_t len, struct lane_end *v) {
    struct cursor c = receiving(p, len, &v->epoch);
    v->sent = get(&c, 8);
    return read_all(&c) && v->epoch != 0;
}
