/* Encoders and decoders of the messages between two workers. */
#include "codec.h"

void weft__wire_cts(struct wire_message *m, struct wire_cts v) {
    struct cursor c = writing(m, WIRE_CTS);
    put(&c, v.request, 4);
    put(&c, v.to, 4);
    put(&c, v.len | (uint64_t)v.in_order << WIRE_IN_ORDER_BIT, 8);
    written(m, &c);
}

bool weft__wire_read_cts(const void *p, size_t len, struct wire_cts *v) {
    struct cursor c = reading(p, len);
    v->request = (uint32_t)get(&c, 4);
    v->to = (uint32_t)get(&c, 4);
    v->len = get(&c, 8);
    v->in_order = v->len >> WIRE_IN_ORDER_BIT;
    v->len &= ~((uint64_t)1 << WIRE_IN_ORDER_BIT);
    return read_all(&c);
}

void weft__wire_fin(struct wire_message *m, struct wire_fin v) {
    struct cursor c = writing(m, WIRE_FIN);
    put(&c, v.request, 4);
    put(&c, (uint32_t)v.status, 4);
    written(m, &c);
}

static weft_status_t status_in(uint32_t bits) {
    int32_t status = (int32_t)bits;
    return status <= 0 && status >= WEFT_STATUS_LAST ? (weft_status_t)status : WEFT_ERR_PROTOCOL;
}

static weft_status_t read_status(struct cursor *c) {
    return status_in((uint32_t)get(c, 4));
}

bool weft__wire_read_fin(const void *p, size_t len, struct wire_fin *v) {
    struct cursor c = reading(p, len);
    v->request = (uint32_t)get(&c, 4);
    v->status = read_status(&c);
    return read_all(&c);
}

void weft__wire_one(struct wire_message *m, enum wire_id id, uint32_t request) {
    struct cursor c = writing(m, id);
    put(&c, request, 4);
    written(m, &c);
}

bool weft__wire_read_empty(const void *p, size_t len, struct wire_empty *v) {
    *v = (struct wire_empty){0};
    return len == 0;
}

bool weft__wire_read_one(const void *p, size_t len, struct wire_one *v) {
    struct cursor c = reading(p, len);
    v->request = (uint32_t)get(&c, 4);
    return read_all(&c);
}

/* CANCELLED is what the shorter form means. */
void weft__wire_gone(struct wire_message *m, struct wire_gone v) {
    struct cursor c = writing(m, WIRE_GONE);
    put(&c, v.to, 4);
    if (v.status != WEFT_ERR_CANCELLED) put(&c, (uint32_t)v.status, 4);
    written(m, &c);
}

bool weft__wire_read_gone(const void *p, size_t len, struct wire_gone *v) {
    struct cursor c = reading(p, len);
    v->to = (uint32_t)get(&c, 4);
    v->status = c.left ? (int32_t)read_status(&c) : WEFT_ERR_CANCELLED;
    return read_all(&c) && v->status < 0;
}

static void write_credit(struct wire_message *m, enum wire_id id, struct wire_credit v) {
    struct cursor c = writing(m, id);
    put(&c, v.ep, 4);
    put(&c, v.bytes, 8);
    written(m, &c);
}
void weft__wire_credit(struct wire_message *m, struct wire_credit v) {
    write_credit(m, WIRE_CREDIT, v);
}
void weft__wire_stream_credit(struct wire_message *m, struct wire_credit v) {
    write_credit(m, WIRE_STREAM_CREDIT, v);
}
void weft__wire_rail_rate(struct wire_message *m, struct wire_credit v) {
    write_credit(m, WIRE_RAIL_RATE, v);
}

void weft__wire_expose(struct wire_message *m, struct wire_expose v) {
    struct cursor c = writing(m, WIRE_EXPOSE);
    put(&c, v.ep, 4);
    put_raw(&c, v.key, v.len);
    written(m, &c);
}

bool weft__wire_read_expose(const void *p, size_t len, struct wire_expose *v) {
    struct cursor c = reading(p, len);
    v->ep = (uint32_t)get(&c, 4);
    v->key = c.at;
    v->len = c.left;
    return c.at != NULL;
}

void weft__wire_put_req(struct wire_message *m, struct wire_put_req v) {
    struct cursor c = writing(m, WIRE_PUT_REQ);
    put(&c, v.request, 4);
    put(&c, v.to, 4);
    put(&c, v.token, 8);
    put(&c, v.address, 8);
    put(&c, v.len, 8);
    written(m, &c);
}

bool weft__wire_read_put_req(const void *p, size_t len, struct wire_put_req *v) {
    struct cursor c = reading(p, len);
    v->request = (uint32_t)get(&c, 4);
    v->to = (uint32_t)get(&c, 4);
    v->token = get(&c, 8);
    v->address = get(&c, 8);
    v->len = get(&c, 8);
    return read_all(&c) && v->len > 0;
}

bool weft__wire_read_stream(const void *p, size_t len, struct wire_stream *v) {
    struct cursor c = reading(p, len);
    uint64_t zero = get(&c, 4);
    v->ep = (uint32_t)get(&c, 4);
    v->bytes = (const char *)c.at;
    v->len = c.left;
    return c.at && zero == 0;
}

bool weft__wire_read_credit(const void *p, size_t len, struct wire_credit *v) {
    struct cursor c = reading(p, len);
    v->ep = (uint32_t)get(&c, 4);
    v->bytes = get(&c, 8);
    return read_all(&c);
}

void weft__wire_hello(struct wire_message *m, struct wire_hello v) {
    struct cursor c = writing(m, WIRE_HELLO);
    put(&c, v.version, 2);
    put(&c, v.flags, 2);
    put(&c, v.listener, 4);
    put(&c, v.worker, 8);
    if (weft__hello_has_ticket(&v)) {
        put_raw(&c, v.ticket, sizeof v.ticket);
        put(&c, v.delivered, 8);
        put(&c, v.epoch, 4);
    }
    written(m, &c);
}

/* A later version may say more; its first two bytes are enough to refuse it by name. */
bool weft__wire_read_hello(const void *p, size_t len, struct wire_hello *v) {
    struct cursor c = reading(p, len);
    *v = (struct wire_hello){0};
    v->version = (uint16_t)get(&c, 2);
    if (c.at && v->version != WIRE_VERSION) return true;
    v->flags = (uint16_t)get(&c, 2);
    v->listener = (uint32_t)get(&c, 4);
    v->worker = get(&c, 8);
    if (c.left == 0 || !(v->flags & WIRE_HELLO_SURVIVES))
        return read_all(&c) && v->worker != 0 && !(v->flags & WIRE_HELLO_RESUME);
    get_raw(&c, v->ticket, sizeof v->ticket);
    v->delivered = get(&c, 8);
    v->epoch = (uint32_t)get(&c, 4);
    return read_all(&c) && v->worker != 0 && weft__hello_has_ticket(v);
}

void weft__wire_open(struct wire_message *m, struct wire_open v) {
    struct cursor c = writing(m, WIRE_OPEN);
    put(&c, v.from, 4);
    put(&c, v.listener, 4);
    put(&c, v.credit, 8);
    put(&c, v.stream, 4);
    if (v.am_first) {
        put(&c, v.lease, 4);
        put(&c, v.am_first, 4);
    }
    written(m, &c);
}

bool weft__wire_read_open(const void *p, size_t len, struct wire_open *v) {
    struct cursor c = reading(p, len);
    v->from = (uint32_t)get(&c, 4);
    v->listener = (uint32_t)get(&c, 4);
    v->credit = get(&c, 8);
    v->stream = (uint32_t)get(&c, 4);
    bool leased = c.left > 0;
    v->lease = leased ? (uint32_t)get(&c, 4) : 0;
    v->am_first = leased ? (uint32_t)get(&c, 4) : 0;
    return read_all(&c) && v->from != 0 && leased == (v->am_first != 0);
}

void weft__wire_accept(struct wire_message *m, struct wire_accept v) {
    struct cursor c = writing(m, WIRE_ACCEPT);
    put(&c, v.ep, 4);
    put(&c, v.from, 4);
    put(&c, v.credit, 8);
    put(&c, v.stream, 4);
    written(m, &c);
}

bool weft__wire_read_accept(const void *p, size_t len, struct wire_accept *v) {
    struct cursor c = reading(p, len);
    v->ep = (uint32_t)get(&c, 4);
    v->from = (uint32_t)get(&c, 4);
    v->credit = get(&c, 8);
    v->stream = (uint32_t)get(&c, 4);
    return read_all(&c) && v->from != 0;
}

void weft__wire_reject(struct wire_message *m, struct wire_reject v) {
    struct cursor c = writing(m, WIRE_REJECT);
    put(&c, v.ep, 4);
    put(&c, (uint32_t)v.status, 4);
    written(m, &c);
}

bool weft__wire_read_reject(const void *p, size_t len, struct wire_reject *v) {
    struct cursor c = reading(p, len);
    v->ep = (uint32_t)get(&c, 4);
    v->status = read_status(&c);
    return read_all(&c) && v->status < 0;
}

void weft__wire_ping(struct wire_message *m) {
    struct cursor c = writing(m, WIRE_PING);
    written(m, &c);
}

void weft__wire_put_done(struct wire_message *m) {
    struct cursor c = writing(m, WIRE_PUT_DONE);
    written(m, &c);
}

size_t weft__wire_rts(void *to, const struct wire_rts *v) {
    struct cursor c = {.at = to};
    put(&c, v->ep, 4);
    put(&c, v->request, 4);
    put(&c, v->kind, 1);
    put(&c, v->memory, 1);
    put(&c, v->header_len, 2);
    put(&c, v->am_id, 2);
    put(&c, v->device_len, 2);
    put(&c, v->tag, 8);
    put(&c, v->len, 8);
    put(&c, v->address, 8);
    if (v->header_len) memcpy(c.at, v->header, v->header_len);
    if (v->device_len) memcpy((char *)c.at + v->header_len, v->device, v->device_len);
    return WIRE_RTS_HEAD + v->header_len + v->device_len;
}

bool weft__wire_read_rts(const void *p, size_t len, struct wire_rts *v) {
    struct cursor c = reading(p, len);
    v->ep = (uint32_t)get(&c, 4);
    v->request = (uint32_t)get(&c, 4);
    v->kind = (uint8_t)get(&c, 1);
    v->memory = (uint8_t)get(&c, 1);
    v->header_len = (uint16_t)get(&c, 2);
    v->am_id = (uint16_t)get(&c, 2);
    v->device_len = (uint16_t)get(&c, 2);
    v->tag = get(&c, 8);
    v->len = get(&c, 8);
    v->address = get(&c, 8);
    v->header = c.at;
    v->device = NULL;
    if (!c.at || c.left != (size_t)v->header_len + v->device_len) return false;
    if (v->device_len) v->device = (const char *)c.at + v->header_len;
    /* longer than any object: a program that adds to it would have a sum that wraps */
    if (v->len > PTRDIFF_MAX) return false;
    return v->header_len <= 256 && v->device_len <= WIRE_RTS_DEVICE_MOST && v->request != 0 &&
           (v->kind == WIRE_OFFER_AM || v->kind == WIRE_OFFER_TAG);
}

void weft__wire_data(void *to, struct wire_data v) {
    struct cursor c = {.at = to};
    put(&c, v.to, 4);
    put(&c, 0, 4);
    put(&c, v.offset, 8);
}

bool weft__wire_read_data(const void *p, size_t len, struct wire_data *v) {
    struct cursor c = reading(p, len);
    v->to = (uint32_t)get(&c, 4);
    get(&c, 4);
    v->offset = get(&c, 8);
    return c.at != NULL;
}

void weft__wire_tag_begin(void *to, struct wire_tag_begin v) {
    struct cursor c = {.at = to};
    put(&c, v.tag, 8);
    put(&c, v.ep, 4);
    put(&c, v.number, 4);
    put(&c, v.len, 8);
}

bool weft__wire_read_tag_begin(const void *p, size_t len, struct wire_tag_begin *v) {
    struct cursor c = reading(p, len);
    v->tag = get(&c, 8);
    v->ep = (uint32_t)get(&c, 4);
    v->number = (uint32_t)get(&c, 4);
    v->len = get(&c, 8);
    v->bytes = (const char *)c.at;
    v->n = c.left;
    return c.at && v->n > 0 && v->n < v->len;
}

void weft__wire_tag_part(void *to, struct wire_tag_part v) {
    struct cursor c = {.at = to};
    put(&c, v.ep, 4);
    put(&c, v.number, 4);
    put(&c, v.offset, 8);
}

/* The status stands in the place of the offset. Zero is what older versions write: CANCELLED. */
void weft__wire_tag_give_up(struct wire_message *m, struct wire_tag_part v) {
    struct cursor c = writing(m, WIRE_TAG_PART);
    put(&c, v.ep, 4);
    put(&c, v.number, 4);
    put(&c, v.status == WEFT_ERR_CANCELLED ? 0 : (uint32_t)v.status, 8);
    written(m, &c);
}

bool weft__wire_read_tag_part(const void *p, size_t len, struct wire_tag_part *v) {
    struct cursor c = reading(p, len);
    v->ep = (uint32_t)get(&c, 4);
    v->number = (uint32_t)get(&c, 4);
    v->offset = get(&c, 8);
    v->bytes = (const char *)c.at;
    v->n = c.left;
    uint32_t why = (uint32_t)v->offset;
    v->status = why ? (int32_t)status_in(why) : WEFT_ERR_CANCELLED;
    return c.at != NULL;
}

/* ---- one-sided operations: the length is asked once, and is known to what reads after that */

static inline void put_key(struct cursor *c, const struct wire_key *key) {
    put(c, key->region, 4);
    put(c, key->epoch, 4);
    put_raw(c, key->token, sizeof key->token);
}

static inline void get_key(struct cursor *c, struct wire_key *key) {
    key->region = (uint32_t)get(c, 4);
    key->epoch = (uint32_t)get(c, 4);
    get_raw(c, key->token, sizeof key->token);
}

void weft__wire_put(void *to, const struct wire_put *v) {
    struct cursor c = {.at = to};
    put(&c, v->ep, 4);
    put(&c, v->request, 4);
    put_key(&c, &v->key);
    put(&c, v->address, 8);
    put(&c, v->flags, 4);
    put(&c, 0, 4);
}

bool weft__wire_read_put(const void *p, size_t len, struct wire_put *v) {
    if (len < WIRE_PUT_HEAD) return false;
    struct cursor c = reading(p, WIRE_PUT_HEAD);
    v->ep = (uint32_t)get(&c, 4);
    v->request = (uint32_t)get(&c, 4);
    get_key(&c, &v->key);
    v->address = get(&c, 8);
    v->flags = (uint32_t)get(&c, 4);
    v->pad = (uint32_t)get(&c, 4);
    return v->flags <= WIRE_PUT_LAST && v->pad == 0;
}

void weft__wire_get(struct wire_message *m, const struct wire_get *v) {
    struct cursor c = writing(m, WIRE_GET);
    put(&c, v->ep, 4);
    put(&c, v->to, 4);
    put_key(&c, &v->key);
    put(&c, v->address, 8);
    put(&c, v->len, 8);
    written(m, &c);
}

bool weft__wire_read_get(const void *p, size_t len, struct wire_get *v) {
    if (len != WIRE_GET_LEN) return false;
    struct cursor c = reading(p, WIRE_GET_LEN);
    v->ep = (uint32_t)get(&c, 4);
    v->to = (uint32_t)get(&c, 4);
    get_key(&c, &v->key);
    v->address = get(&c, 8);
    v->len = get(&c, 8);
    return read_all(&c) && v->to != 0 && v->len != 0;
}

void weft__wire_atomic(struct wire_message *m, const struct wire_atomic *v) {
    struct cursor c = writing(m, WIRE_ATOMIC);
    put(&c, v->ep, 4);
    put(&c, v->request, 4);
    put_key(&c, &v->key);
    put(&c, v->address, 8);
    put(&c, v->what | (uint64_t)v->size << 8 | (uint64_t)v->fetch << 16, 8);
    put(&c, v->operand, 8);
    put(&c, v->compare, 8);
    written(m, &c);
}

bool weft__wire_read_atomic(const void *p, size_t len, struct wire_atomic *v) {
    if (len != WIRE_ATOMIC_LEN) return false;
    struct cursor c = reading(p, WIRE_ATOMIC_LEN);
    v->ep = (uint32_t)get(&c, 4);
    v->request = (uint32_t)get(&c, 4);
    get_key(&c, &v->key);
    v->address = get(&c, 8);
    uint64_t how = get(&c, 8);
    v->what = (uint8_t)how;
    v->size = (uint8_t)(how >> 8);
    v->fetch = (uint8_t)(how >> 16);
    v->operand = get(&c, 8);
    v->compare = get(&c, 8);
    return read_all(&c) && how >> 24 == 0 && v->fetch <= 1 && (!v->fetch || v->request);
}

void weft__wire_rma_done(struct wire_message *m, struct wire_rma_done v) {
    struct cursor c = writing(m, WIRE_RMA_DONE);
    put(&c, v.request, 4);
    put(&c, (uint32_t)v.status, 4);
    put(&c, v.value, 8);
    written(m, &c);
}

bool weft__wire_read_rma_done(const void *p, size_t len, struct wire_rma_done *v) {
    if (len != WIRE_RMA_DONE_LEN) return false;
    struct cursor c = reading(p, WIRE_RMA_DONE_LEN);
    v->request = (uint32_t)get(&c, 4);
    v->status = read_status(&c);
    v->value = get(&c, 8);
    return read_all(&c) && v->request != 0;
}

void weft__wire_flush(struct wire_message *m, struct wire_flush v) {
    struct cursor c = writing(m, WIRE_FLUSH);
    put(&c, v.ep, 4);
    put(&c, v.request, 4);
    written(m, &c);
}

bool weft__wire_read_flush(const void *p, size_t len, struct wire_flush *v) {
    struct cursor c = reading(p, len);
    v->ep = (uint32_t)get(&c, 4);
    v->request = (uint32_t)get(&c, 4);
    return read_all(&c) && v->request != 0;
}

void weft__wire_flushed(struct wire_message *m, struct wire_fin v) {
    weft__wire_fin(m, v);
    m->id = WIRE_FLUSHED;
}

bool weft__wire_read_flushed(const void *p, size_t len, struct wire_fin *v) {
    return weft__wire_read_fin(p, len, v) && v->request != 0;
}
