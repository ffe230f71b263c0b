/*
 * A worker's address: 'W' 'a' version n, worker id (8 bytes), then n entries of
 * name length, name, address length, address.
 *
 * The entry "lease" is no transport. It has the id (4 bytes) of the lease by which a library uses
 * the worker, and readers of earlier versions pass over it.
 */
#include "connect.h"
#include <base/check.h>
#include <endpoints/core/lease.h>
#include <endpoints/core/worker.h>

static const char lease_name[] = "lease";
enum { LEASE_NAME = sizeof lease_name - 1 };
enum { ADDRESS_VERSION = 1, ADDRESS_HEAD = 12 };

static weft_status_t bad(const char *what) {
    return weft__fail(WEFT_ERR_ADDRESS, "worker address: %s", what);
}

/* One entry at `*at`, which moves behind it. */
static bool read_entry(const uint8_t **at, const uint8_t *end, struct address_entry *entry) {
    const uint8_t *p = *at;
    if (end - p < 1 || p[0] == 0 || end - p < 2 + p[0]) return false;
    entry->name_len = p[0];
    entry->name = (const char *)p + 1;
    p += 1 + entry->name_len;
    entry->len = p[0];
    if (end - p < 1 + entry->len) return false;
    entry->bytes = p + 1;
    *at = p + 1 + entry->len;
    return true;
}

static void read_lease(struct address *address) {
    for (uint32_t i = 0; i < address->n; i++) {
        const struct address_entry *e = &address->entry[i];
        if (e->name_len != LEASE_NAME || e->len != 4 || memcmp(e->name, lease_name, LEASE_NAME))
            continue;
        for (unsigned k = 0; k < 4; k++) address->lease |= (uint32_t)e->bytes[k] << 8 * k;
    }
}

weft_status_t weft__address_read(const void *bytes, size_t len, struct address *address_p) {
    const uint8_t *p = bytes, *end = p + len;
    struct address address = {0};
    if (len < ADDRESS_HEAD || p[0] != 'W' || p[1] != 'a')
        return bad("the bytes are not a worker address");
    if (p[2] != ADDRESS_VERSION) return bad("unknown version");
    address.n = p[3];
    if (address.n > ADDRESS_ENTRIES) return bad("too many transports");
    for (unsigned i = 0; i < 8; i++) address.worker |= (uint64_t)p[4 + i] << 8 * i;
    if (address.worker == 0) return bad("the worker id is 0");

    const uint8_t *at = p + ADDRESS_HEAD;
    for (uint32_t i = 0; i < address.n; i++)
        if (!read_entry(&at, end, &address.entry[i])) return bad("truncated");
    if (at != end) return bad("trailing bytes");
    read_lease(&address);
    *address_p = address;
    return WEFT_OK;
}

static uint8_t *write_lease(uint8_t *at, uint32_t lease) {
    *at++ = LEASE_NAME;
    memcpy(at, lease_name, LEASE_NAME);
    at += LEASE_NAME;
    *at++ = 4;
    for (unsigned i = 0; i < 4; i++) *at++ = (uint8_t)(lease >> 8 * i);
    return at;
}

/* Peers cannot use this transport, so log it. */
static void unreachable_by(weft_worker_t *worker, const struct iface *iface, weft_status_t status) {
    char why[STATUS_LINE];
    weft__status_line(status, why);
    weft__log(worker->context, WEFT_LOG_WARN, "endpoints",
              "the worker's address does not include transport %s: %s", iface->transport->name,
              why);
}

/* What a transport's address may have, if `head` bytes come before it. */
static size_t room_behind(const uint8_t *at, const uint8_t *end, size_t head) {
    size_t left = (size_t)(end - at), most = 96;
    if (left < head) return 0;
    return left - head < most ? left - head : most;
}

weft_status_t weft_worker_address(weft_worker_t *worker, void *buf, size_t *len_p) {
    return weft__worker_address_by(worker, NULL, buf, len_p);
}

static uint8_t *write_head(uint8_t *out, const weft_worker_t *worker, const struct lease *lease) {
    out[0] = 'W';
    out[1] = 'a';
    out[2] = ADDRESS_VERSION;
    out[3] = lease ? 1 : 0;
    for (unsigned i = 0; i < 8; i++) out[4 + i] = (uint8_t)(worker->id >> 8 * i);
    return lease ? write_lease(out + ADDRESS_HEAD, lease->id) : out + ADDRESS_HEAD;
}

/* Appends an entry of the transport at *at_p, which it moves behind it. */
static weft_status_t write_iface(struct iface *iface, uint8_t **at_p, const uint8_t *end) {
    uint8_t *at = *at_p;
    size_t name_len = strlen(iface->transport->name);
    size_t room = room_behind(at, end, name_len + 2);
    if (!room)
        return weft__fail(WEFT_ERR_TRUNCATED, "a worker address takes at most %d bytes",
                          ADDRESS_MAX);
    weft_status_t st = iface->ops->address(iface, at + name_len + 2, &room);
    if (st < 0) return st;
    at[0] = (uint8_t)name_len;
    memcpy(at + 1, iface->transport->name, name_len);
    at[1 + name_len] = (uint8_t)room;
    *at_p = at + name_len + 2 + room;
    return WEFT_OK;
}

weft_status_t weft__worker_address_by(weft_worker_t *worker, const char *transports, void *buf,
                                      size_t *len_p) {
    uint8_t out[ADDRESS_MAX];
    if (!worker || !len_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker or len_p is NULL");
    const struct lease *lease = worker->lease;
    worker = weft__worker_itself(worker);
    weft_status_t st = weft__check_memory("buf", buf, *len_p);
    if (st == WEFT_OK) st = weft__worker_check(worker);
    if (st < 0) return st;

    uint8_t *at = write_head(out, worker, lease);
    for (uint32_t i = 0; i < worker->n_ifaces; i++) {
        struct iface *iface = worker->iface[i];
        if (!weft__iface_is_named(iface, transports)) continue;
        st = write_iface(iface, &at, out + sizeof out);
        if (st < 0)
            unreachable_by(worker, iface, st);
        else
            out[3]++;
    }
    size_t len = (size_t)(at - out);
    if (*len_p < len) {
        *len_p = len;
        return weft__fail(WEFT_ERR_TRUNCATED, "the address takes %zu bytes", len);
    }
    memcpy(buf, out, len);
    *len_p = len;
    return WEFT_OK;
}
