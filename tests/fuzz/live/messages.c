/* Every message of docs/wire.md, with fields that exist, that nearly exist, or that never did. */
#include <endpoints/memory/rkey.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

enum { MOST_PAYLOAD = 200000, SCRATCH = 2 << 20 };
static uint8_t scratch[SCRATCH]; /* where the victim may write, if it is asked to */

/* ---- fields */

static uint64_t a_length(void) {
    static const uint64_t edges[] = {0,          1,
                                     8,          63,
                                     64,         65,
                                     1024,       4095,
                                     4096,       8192,
                                     32767,      32768,
                                     40000,      65535,
                                     65536,      65537,
                                     70000,      100000,
                                     131072,     180000,
                                     1 << 20,    3 << 20,
                                     1ull << 31, 1ull << 32,
                                     1ull << 62, UINT64_MAX / 2,
                                     UINT64_MAX};
    return percent(70)   ? edges[below(22)]
           : percent(60) ? below(MOST_PAYLOAD)
                         : edges[below(sizeof edges / 8)];
}
static size_t a_payload(void) {
    uint64_t len =
        world->scenario == PLACEMENT && percent(70) ? 32 * 1024 + below(60000) : a_length();
    return len <= MOST_PAYLOAD ? (size_t)len : below(MOST_PAYLOAD);
}

/* What a peer may not send: so many of a hundred say yes, and fewer where a run is to get far. */
static bool oddly(uint32_t yes) {
    return percent(yes) && (world->crude || percent(10));
}

static uint32_t nearly(uint32_t value) {
    switch (below(5)) {
    case 0: return value ^ 1u << below(32);
    case 1: return value + 1;
    case 2: return value + (1u << 20); /* another generation */
    case 3: return (uint32_t)chance();
    default: return 0;
    }
}

/* One that this connection knows; now and then another's, or an unknown one. */
static uint32_t an_id(const struct peer *p, const struct known *own, size_t offset) {
    const struct known *of = own;
    if (oddly(5)) of = (const struct known *)((const char *)&peers[below(PEERS)] + offset);
    uint32_t value = known_any(of);
    return oddly(4) ? nearly(value) : value;
}
#define AN_ID(p, field) an_id((p), &(p)->field, offsetof(struct peer, field))

static uint32_t own_id(struct peer *p) {
    static uint32_t next;
    uint32_t id = 0x100000 + ++next % 0x8000;
    known_add(&p->offers, id);
    return id;
}

/* Few, so that they meet the victim's receives. */
static uint64_t a_tag(void) {
    return below(world->scenario == PLACEMENT ? 2 : 4);
}
static weft_status_t a_status(void) {
    return percent(50) ? WEFT_OK : (weft_status_t) - (int)below(-WEFT_STATUS_LAST + 3);
}
static const uint8_t *payload_at(uint64_t offset) {
    return bytes_of(RAW_NAME, offset);
}

/* ---- control messages: some are sent with a byte changed, cut or longer */

static void send_control(struct peer *p, struct wire_message *m) {
    uint8_t bytes[sizeof m->bytes + 8] = {0};
    memcpy(bytes, m->bytes, m->len);
    size_t len = m->len;
    bool may_change = m->id != WIRE_PUT_REQ; /* an address of this process's memory */
    if (may_change && oddly(2) && len) bytes[below(len)] ^= (uint8_t)(1 << below(8));
    if (oddly(1)) len = below(len + 8);
    trace("peer %u sends %u, %zu bytes", p->number, m->id, len);
    peer_send(p, m->id, bytes, len, percent(97) ? SIZE_MAX : below(64));
}

void message_handshake(struct peer *p, uint16_t flags) {
    struct wire_message m;
    struct wire_hello hello = {.version = WIRE_VERSION, .flags = flags, .worker = p->id};
    if (flags & (WIRE_HELLO_RAIL | WIRE_HELLO_LANE))
        hello.listener = known_any(&peers[below(PEERS)].numbers);
    p->came = p->sent = 0;
    weft__wire_hello(&m, hello);
    send_control(p, &m);
}

void message_open(struct peer *p) {
    struct wire_message m;
    uint64_t credit = percent(80) ? 1 << 20 : a_length();
    weft__wire_open(
        &m, (struct wire_open){.from = own_id(p), .credit = credit, .stream = (uint32_t)credit});
    send_control(p, &m);
}

void message_resume(struct peer *p, const struct peer *of) {
    struct wire_message m;
    struct wire_hello hello = {.version = WIRE_VERSION, .worker = of->id};
    hello.flags = WIRE_HELLO_EXTRA | WIRE_HELLO_SURVIVES | WIRE_HELLO_RESUME |
                  (percent(50) ? WIRE_HELLO_PARTS : 0);
    memcpy(hello.ticket, of->ticket, sizeof hello.ticket);
    hello.delivered = percent(60) ? of->came : percent(50) ? 0 : of->came + below(4) - 1;
    hello.epoch = of->tries + 1 - (percent(5) ? below(3) : 0);
    memcpy(p->ticket, of->ticket, sizeof p->ticket);
    p->id = of->id;
    p->has_ticket = true;
    p->tries = of->tries + 1;
    p->came = of->came;
    p->eps = of->eps;
    p->requests = of->requests;
    weft__wire_hello(&m, hello);
    send_control(p, &m);
}

/* ---- messages with a payload: what is sent is always the byte that belongs at its offset */

static void send_payload(struct peer *p, uint8_t id, const void *head, size_t head_len,
                         uint64_t offset, size_t len, size_t now) {
    uint8_t *bytes = malloc(head_len + len + 1);
    if (!bytes) abort();
    memcpy(bytes, head, head_len);
    memcpy(bytes + head_len, payload_at(offset), len);
    size_t whole = !oddly(2) ? head_len + len : below(head_len + len + 1);
    trace("peer %u sends %u with %zu bytes of payload, %zd of them now", p->number, id,
          whole - head_len, now);
    peer_send(p, id, bytes, whole, now);
    free(bytes);
}

static void send_tag(struct peer *p, size_t now) {
    struct wire_tag head = {a_tag(), AN_ID(p, eps)};
    send_payload(p, WIRE_TAG, &head, sizeof head, 0, a_payload(), now);
}

static void send_am(struct peer *p, size_t now) {
    uint8_t head[8 + 64] = {0};
    size_t header = percent(70) ? 0 : below(64);
    uint64_t word = wire_am_word(AN_ID(p, eps), header, !oddly(10) ? 1 + below(3) : below(1100));
    if (percent(5)) word = WIRE_AM_NO_REPLY | (word & 0xffff);
    memcpy(head, &word, sizeof word);
    send_payload(p, WIRE_AM, head, 8 + header, 0, a_payload(), now);
}

static void send_stream(struct peer *p, size_t now) {
    uint64_t head = wire_stream_word(AN_ID(p, eps));
    send_payload(p, WIRE_STREAM, &head, sizeof head, 0, percent(50) ? below(5000) : a_payload(),
                 now);
}

static void send_begin(struct peer *p, size_t now) {
    uint8_t head[WIRE_TAG_BEGIN_HEAD];
    size_t n = 1 + a_payload();
    struct wire_tag_begin v = {
        .tag = a_tag(), .len = !oddly(20) ? n + 1 + a_payload() : a_length(), .ep = AN_ID(p, eps)};
    v.number = p->parts.number + 1;
    p->parts = v;
    p->parts_at = n;
    weft__wire_tag_begin(head, v);
    send_payload(p, WIRE_TAG_BEGIN, head, sizeof head, 0, n, now);
}

static void send_part(struct peer *p, size_t now) {
    uint8_t head[WIRE_TAG_PART_HEAD];
    struct wire_tag_part v = {.ep = p->parts.ep, .number = p->parts.number, .offset = p->parts_at};
    uint64_t left = p->parts.len > p->parts_at ? p->parts.len - p->parts_at : 0;
    size_t n = percent(50) && left <= MOST_PAYLOAD ? (size_t)left : a_payload();
    if (n > left && !oddly(10)) n = (size_t)left;
    if (oddly(4)) v.offset += below(3) - 1;
    if (oddly(3)) v.number++;
    p->parts_at += n;
    weft__wire_tag_part(head, v);
    send_payload(p, WIRE_TAG_PART, head, sizeof head, v.offset, n, now);
}

/* A range of the victim's memory, as its key says; or beside it. */
static bool a_region(struct wire_key *key, uint64_t *address, uint64_t *len) {
    const struct field *f = &world->field[below(FIELDS)];
    struct rkey_packed packed;
    if (!f->key_len || weft__rkey_read(f->key, f->key_len, &packed) != WEFT_OK) return false;
    *key = (struct wire_key){.region = packed.region.id, .epoch = packed.region.epoch};
    memcpy(key->token, packed.region.token, sizeof key->token);
    *address = packed.region.base + below(f->len);
    *len = percent(70) ? below(f->len) : a_length();
    if (percent(70) && *len > packed.region.base + f->len - *address)
        *len = packed.region.base + f->len - *address;
    if (percent(10)) *address = packed.region.base + packed.region.len - below(9);
    if (percent(4)) *address = UINT64_MAX - below(70000);
    if (percent(4)) key->epoch++;
    if (percent(2)) key->token[below(16)] ^= 1;
    if (percent(2)) key->region = nearly(key->region);
    return true;
}

static void send_put(struct peer *p, size_t now) {
    uint8_t head[WIRE_PUT_HEAD];
    struct wire_put v = {
        .ep = AN_ID(p, eps), .request = percent(50) ? 0 : own_id(p), .flags = below(3)};
    uint64_t len;
    if (!a_region(&v.key, &v.address, &len)) return;
    if (len > MOST_PAYLOAD) len = MOST_PAYLOAD;
    weft__wire_put(head, &v);
    send_payload(p, WIRE_PUT, head, sizeof head, 0, (size_t)len, now);
}

static void send_data_to(struct peer *p, uint32_t to, uint64_t offset, size_t len, size_t now) {
    uint8_t head[WIRE_DATA_HEAD];
    weft__wire_data(head, (struct wire_data){.to = to, .offset = offset});
    send_payload(p, WIRE_DATA, head, sizeof head, offset, len, now);
}
static void send_data(struct peer *p, size_t now) {
    send_data_to(p, AN_ID(p, requests), percent(40) ? 0 : a_length(), a_payload(), now);
}

void message_payload(struct peer *p, size_t now) {
    if (!p->eps.n && !world->crude) return;
    switch (below(16)) {
    case 0: send_am(p, now); break;
    case 1: send_stream(p, now); break;
    case 2: send_put(p, now); break;
    case 3: send_data(p, now); break;
    case 4: send_begin(p, now); break;
    case 5:
    case 6:
    case 7: send_part(p, now); break;
    default: send_tag(p, now); break;
    }
}

/* ---- offers, keys, lanes */

/* Its address is of memory that holds the payload, if it has one that can be read. */
static void send_offer(struct peer *p) {
    uint8_t bytes[WIRE_RTS_HEAD + 64] = {0};
    struct wire_rts v = {.ep = AN_ID(p, eps),
                         .request = own_id(p),
                         .tag = a_tag(),
                         .len = a_length(),
                         .header = bytes};
    v.kind = (uint8_t)(!oddly(5) ? 1 + below(2) : below(256));
    v.am_id = (uint16_t)(1 + below(3));
    v.header_len = (uint16_t)(v.kind == WIRE_OFFER_AM && percent(30) ? below(64) : 0);
    if (v.len <= LARGEST && percent(50)) v.address = (uint64_t)(uintptr_t)payload_at(0);
    if (percent(3)) v.address = below(4096);
    uint8_t packed[WIRE_RTS_HEAD + 64];
    size_t len = weft__wire_rts(packed, &v);
    trace("peer %u offers %llu bytes", p->number, (unsigned long long)v.len);
    peer_send(p, WIRE_RTS, packed, !oddly(2) ? len : below(len + 1), SIZE_MAX);
}

static void send_put_req(struct peer *p) {
    struct wire_message m;
    struct wire_put_req v = {.request = AN_ID(p, requests),
                             .token = (uint64_t)below(64) << 32 | below(4)};
    v.to = percent(50) ? 0 : own_id(p);
    v.len = percent(80) ? 1 + below(SCRATCH - 1) : a_length();
    v.address = v.len <= SCRATCH ? (uint64_t)(uintptr_t)scratch : below(4096);
    weft__wire_put_req(&m, v);
    send_control(p, &m);
}

static void send_exposure(struct peer *p) {
    struct wire_message m;
    struct rkey_packed packed = {.worker = p->id, .region = {.len = LARGEST, .rights = below(16)}};
    uint8_t key[WEFT_RKEY_MAX];
    packed.region.base = (uint64_t)(uintptr_t)payload_at(0);
    packed.region.id = 1 + below(3);
    size_t len = weft__rkey_write(key, &packed);
    weft__wire_expose(&m, (struct wire_expose){.ep = AN_ID(p, eps), .key = key, .len = len});
    send_control(p, &m);
}

static uint64_t a_count(const struct peer *p) {
    return percent(70) ? p->came : percent(60) ? p->came - below(3) : chance() >> below(64);
}

static uint32_t an_epoch(struct peer *p) {
    return percent(70) ? AN_ID(p, epochs) : 1 + below(6);
}

/* Where this side listens, as a lane's address. */
static size_t an_address(uint8_t to[TCP_ADDRESS_MAX]) {
    struct tcp_address a = {.n = 1, .worker = percent(80) ? RAW_WORKER : chance()};
    size_t len = 0;
    a.place[0] = (struct tcp_place){.family = 4, .port = peers_port(), .ip = {127, 0, 0, 1}};
    if (percent(5)) return below(TCP_ADDRESS_MAX);
    len = weft__tcp_address_size(&a);
    weft__tcp_address_encode(&a, to);
    return len;
}

static void send_lane(struct peer *p) {
    static const enum lane_kind kinds[] = {
        LANE_ASK,           LANE_GRANT,     LANE_DENY,    LANE_CANCEL, LANE_BACK,
        LANE_SCORE,         LANE_END,       LANE_DRAINED, LANE_ACK,    LANE_ACK_ASK,
        LANE_HEARTBEAT_ASK, LANE_HEARTBEAT, LANE_PROCESS};
    static const char *const names[] = {"shm", "tcp", "self", "sim", "?"};
    struct wire_message m;
    uint8_t address[TCP_ADDRESS_MAX] = {0};
    size_t len = an_address(address);
    const char *name = names[below(5)];
    uint32_t epoch = an_epoch(p);
    enum lane_kind kind = kinds[below(sizeof kinds / sizeof *kinds)];
    struct lane_ask ask = {epoch,  chance() >> below(64), (uint8_t)strlen(name), (uint8_t)len, name,
                           address};
    struct lane_grant grant = {epoch, known_any(&p->offers), (uint8_t)len, address};
    switch (kind) {
    case LANE_ASK: weft__lane_ask(&m, &ask); break;
    case LANE_GRANT: weft__lane_grant(&m, &grant); break;
    case LANE_DENY:
        weft__lane_deny(&m, (struct lane_deny){epoch, below(100), (uint8_t)below(6)});
        break;
    case LANE_SCORE: weft__lane_score(&m, (struct lane_score){epoch, chance() >> below(64)}); break;
    case LANE_END:
        weft__lane_end(&m, (struct lane_end){epoch, percent(50) ? p->sent : a_count(p)});
        break;
    case LANE_ACK: weft__lane_count(&m, kind, a_count(p)); break;
    case LANE_ACK_ASK:
    case LANE_HEARTBEAT_ASK:
    case LANE_HEARTBEAT: weft__lane_count(&m, kind, 0); break;
    case LANE_PROCESS:
        weft__lane_process(&m, (struct lane_process){.host = chance(), .pid = 1 + below(100000)});
        break;
    default: weft__lane_one(&m, kind, epoch); break;
    }
    send_control(p, &m);
}

static void send_atomic(struct peer *p) {
    struct wire_message m;
    struct wire_atomic v = {.ep = AN_ID(p, eps), .request = percent(50) ? own_id(p) : 0};
    uint64_t len;
    if (!a_region(&v.key, &v.address, &len)) return;
    if (percent(80)) v.address &= ~(uint64_t)7;
    v.what = (uint8_t)below(7);
    v.size = percent(90) ? (uint8_t)(percent(50) ? 4 : 8) : (uint8_t)below(256);
    v.fetch = (uint8_t)below(2);
    v.operand = v.compare = chance();
    weft__wire_atomic(&m, &v);
    send_control(p, &m);
}

static void send_get(struct peer *p) {
    struct wire_message m;
    struct wire_get v = {.ep = AN_ID(p, eps), .to = own_id(p)};
    if (!a_region(&v.key, &v.address, &v.len)) return;
    weft__wire_get(&m, &v);
    send_control(p, &m);
}

/* ---- any of them */

/* The last ones end the link, or the endpoint, of who sends them in most states. */
static void a_control(struct peer *p, struct wire_message *m) {
    uint32_t request = AN_ID(p, requests), ep = AN_ID(p, eps), own = known_any(&p->offers);
    switch (below(oddly(60) ? 20 : 14)) {
    case 0:
        weft__wire_cts(m,
                       (struct wire_cts){request, own_id(p), a_length() & INT64_MAX, percent(20)});
        break;
    case 1: weft__wire_fin(m, (struct wire_fin){request, a_status()}); break;
    case 2:
    case 3: weft__wire_one(m, WIRE_CANCEL, own); break;
    case 4: weft__wire_gone(m, (struct wire_gone){request, a_status()}); break;
    case 5: weft__wire_credit(m, (struct wire_credit){.ep = ep, .bytes = a_length()}); break;
    case 6: weft__wire_stream_credit(m, (struct wire_credit){.ep = ep, .bytes = a_length()}); break;
    case 7:
        weft__wire_rail_rate(m, (struct wire_credit){.ep = below(4), .bytes = a_length()});
        break;
    case 8: weft__wire_put_done(m); break;
    case 9: weft__wire_ping(m); break;
    case 10: weft__wire_flush(m, (struct wire_flush){ep, own_id(p)}); break;
    case 11: weft__wire_flushed(m, (struct wire_fin){request, a_status()}); break;
    case 12: weft__wire_rma_done(m, (struct wire_rma_done){request, a_status(), chance()}); break;
    case 13: weft__wire_one(m, WIRE_RAIL, percent(50) ? 0 : AN_ID(p, numbers)); break;
    case 14:
        weft__wire_accept(m, (struct wire_accept){ep, own_id(p), a_length(), (uint32_t)a_length()});
        break;
    case 15: weft__wire_reject(m, (struct wire_reject){ep, a_status()}); break;
    case 16: weft__wire_one(m, WIRE_CLOSE, ep); break;
    case 17:
        weft__wire_one(m, WIRE_RAIL,
                       percent(50) ? 0 : AN_ID(p, numbers) ^ (percent(20) ? 1u << 31 : 0));
        break;
    case 18:
        weft__wire_tag_give_up(m, (struct wire_tag_part){.ep = p->parts.ep,
                                                         .number = p->parts.number,
                                                         .status = a_status()});
        break;
    default:
        weft__wire_hello(
            m, (struct wire_hello){WIRE_VERSION, (uint16_t)below(512), 0, p->id, {0}, 0, 0});
        break;
    }
}

void message_send(struct peer *p) {
    struct wire_message m;
    if (!p->eps.n && !world->crude) return; /* all of these name an endpoint, or an object of one */
    if (!world->crude && percent(50)) {
        percent(50) ? message_payload(p, SIZE_MAX) : send_offer(p);
        return;
    }
    switch (below(12)) {
    case 0:
    case 1: message_payload(p, SIZE_MAX); break;
    case 2:
    case 3: send_offer(p); break;
    case 4: send_get(p); break;
    case 5: send_atomic(p); break;
    case 6: send_lane(p); break;
    case 7: percent(50) ? send_put_req(p) : send_exposure(p); break;
    case 8: message_open(p); break;
    default:
        a_control(p, &m);
        send_control(p, &m);
        break;
    }
}

/* Many of one kind, and no answer is read. */
void message_flood(struct peer *p) {
    struct wire_message m;
    unsigned n = 20 + below(200);
    a_control(p, &m);
    if (m.id == WIRE_CLOSE || m.id == WIRE_HELLO) return;
    trace("peer %u sends %u, %u times", p->number, m.id, n);
    for (unsigned i = 0; i < n; i++) peer_send(p, m.id, m.bytes, m.len, SIZE_MAX);
}

/* ---- answers, as they should be in most cases */

static void answer_handshake(struct peer *p, const struct debt *d) {
    struct wire_message m;
    struct wire_hello hello = {.version = WIRE_VERSION,
                               .worker = p->id,
                               .flags = (uint16_t)(d->a & ~(uint32_t)WIRE_HELLO_EXPOSURES)};
    if (d->a & WIRE_HELLO_SURVIVES) {
        memset(hello.ticket, 1 + (int)below(3), sizeof hello.ticket);
        hello.epoch = d->b;
        hello.delivered = percent(70) ? 0 : below(4);
        if (percent(20)) hello.flags &= (uint16_t)~WIRE_HELLO_RESUME;
    }
    if (percent(10)) hello.flags ^= (uint16_t)(1 << below(9));
    p->shaken = true;
    weft__wire_hello(&m, hello);
    send_control(p, &m);
}

static void answer_lane(struct peer *p, const struct debt *d) {
    struct wire_message m;
    uint8_t address[TCP_ADDRESS_MAX] = {0};
    size_t len = an_address(address);
    if (d->kind == LANE_ASK)
        weft__lane_grant(&m, &(struct lane_grant){d->a, own_id(p), (uint8_t)len, address});
    else if (d->kind == LANE_END)
        weft__lane_one(&m, LANE_DRAINED, d->a);
    else if (d->kind == LANE_HEARTBEAT_ASK)
        weft__lane_count(&m, LANE_HEARTBEAT, 0);
    else
        weft__lane_count(&m, LANE_ACK, a_count(p));
    send_control(p, &m);
}

/* The next piece of what was asked for. False: all of it was sent. */
static bool answer_data(struct peer *p, struct debt *d) {
    uint64_t left = d->len - d->at;
    size_t n = left > MOST_PAYLOAD || percent(50) ? a_payload() : (size_t)left;
    if (n > left) n = (size_t)left;
    send_data_to(p, d->b, d->at, n, percent(70) ? SIZE_MAX : below(n + 1));
    d->at += n;
    return d->at < d->len;
}

void message_answer(struct peer *p) {
    struct wire_message m;
    if (!p->n_debts) return;
    unsigned i = percent(70) ? 0 : below(p->n_debts);
    struct debt d = p->debt[i];
    bool more = false;
    switch (d.id) {
    case WIRE_HELLO: answer_handshake(p, &d); break;
    case WIRE_LANE: answer_lane(p, &d); break;
    case WIRE_CTS:
        if (percent(8)) {
            weft__wire_gone(&m, (struct wire_gone){d.b, a_status()});
            send_control(p, &m);
        } else {
            more = answer_data(p, &d);
        }
        break;
    case WIRE_OPEN:
        weft__wire_accept(
            &m, (struct wire_accept){d.a, own_id(p), percent(80) ? 1 << 20 : a_length(), 1 << 20});
        send_control(p, &m);
        break;
    case WIRE_RTS:
        if (percent(60))
            weft__wire_cts(&m, (struct wire_cts){d.a, own_id(p), d.len, percent(20)});
        else
            weft__wire_fin(&m, (struct wire_fin){d.a, a_status()});
        send_control(p, &m);
        break;
    case WIRE_PUT:
        weft__wire_rma_done(&m, (struct wire_rma_done){d.a, a_status(), chance()});
        send_control(p, &m);
        break;
    case WIRE_FLUSH:
        weft__wire_flushed(&m, (struct wire_fin){d.a, a_status()});
        send_control(p, &m);
        break;
    case WIRE_RAIL:
        weft__wire_one(&m, WIRE_RAIL, percent(90) ? own_id(p) : 0);
        send_control(p, &m);
        break;
    }
    if (more)
        p->debt[i].at = d.at;
    else
        memmove(p->debt + i, p->debt + i + 1, (--p->n_debts - i) * sizeof *p->debt);
}
