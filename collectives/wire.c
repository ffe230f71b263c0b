/* Encoders and decoders of the messages between members. */
#include "wire.h"

#include <string.h>

enum { MEMBER_MAGIC = 0x344d5457 /* "WTM4": the layout below, and the hash of all, version 4 */ };

static uint8_t *put_wire(uint8_t *to, uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++) to[i] = (uint8_t)(value >> 8 * i);
    return to + bytes;
}

static uint64_t get_wire(const uint8_t **from, unsigned bytes) {
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++) value |= (uint64_t)(*from)[i] << 8 * i;
    *from += bytes;
    return value;
}

void weft__coll_wire_write(uint8_t to[COLL_WIRE_BYTES], const struct coll_wire *v) {
    to = put_wire(to, v->team, 8);
    to = put_wire(to, v->epoch, 4);
    to = put_wire(to, v->seq, 4);
    to = put_wire(to, v->tag, 4);
    to = put_wire(to, v->from, 4);
    put_wire(to, v->stream, 4);
}

bool weft__coll_wire_read(const void *p, size_t len, struct coll_wire *v) {
    const uint8_t *at = p;
    if (len != COLL_WIRE_BYTES) return false;
    v->team = get_wire(&at, 8);
    v->epoch = (uint32_t)get_wire(&at, 4);
    v->seq = (uint32_t)get_wire(&at, 4);
    v->tag = (uint32_t)get_wire(&at, 4);
    v->from = (uint32_t)get_wire(&at, 4);
    v->stream = (uint32_t)get_wire(&at, 4);
    return true;
}

void weft__agree_head_write(uint8_t to[AGREE_HEAD_BYTES], const struct agree_head *v) {
    to = put_wire(to, v->flags, 8);
    to = put_wire(to, v->ballot, 4);
    put_wire(to, v->blob_len, 4);
}

bool weft__agree_head_read(const void *p, size_t len, struct agree_head *v) {
    const uint8_t *at = p;
    if (len < AGREE_HEAD_BYTES) return false;
    v->flags = get_wire(&at, 8);
    v->ballot = (uint32_t)get_wire(&at, 4);
    v->blob_len = (uint32_t)get_wire(&at, 4);
    return true;
}

enum { INVITATION_MAGIC = 0x31495457 /* "WTI1" */ };

void weft__invitation_write(uint8_t to[INVITATION_HEAD], const struct coll_invitation *v) {
    to = put_wire(to, INVITATION_MAGIC, 4);
    to = put_wire(to, v->team, 8);
    put_wire(to, v->epoch, 4);
}

bool weft__invitation_read(const void *p, size_t len, struct coll_invitation *v) {
    const uint8_t *at = p;
    if (len <= INVITATION_HEAD || len > INVITATION_HEAD + INVITATION_ADDRESS_MOST) return false;
    if (get_wire(&at, 4) != INVITATION_MAGIC) return false;
    v->team = get_wire(&at, 8);
    v->epoch = (uint32_t)get_wire(&at, 4);
    v->address = at;
    v->address_len = len - INVITATION_HEAD;
    return true;
}

void weft__member_write(uint8_t to[MEMBER_RECORD_BYTES], const struct member_record *v) {
    uint8_t *at = put_wire(to, MEMBER_MAGIC, 4);
    at = put_wire(at, v->address_len, 2);
    at = put_wire(at, v->flags, 2);
    at = put_wire(at, v->nonce, 8);
    at = put_wire(at, v->host, 8);
    at = put_wire(at, v->cores, 4);
    at = put_wire(at, v->core, 4);
    at = put_wire(at, v->ranks_per_core, 4);
    at = put_wire(at, v->pid, 4);
    at = put_wire(at, v->fd, 4);
    at = put_wire(at, v->probe, 8);
    at = put_wire(at, v->eager, 8);
    at = put_wire(at, v->slot, 8);
    at = put_wire(at, v->choices, 8);
    memcpy(at, v->address, sizeof v->address);
    memset(at + sizeof v->address, 0, (size_t)(to + MEMBER_RECORD_BYTES - at) - sizeof v->address);
}

bool weft__member_read(const void *p, size_t len, struct member_record *v) {
    const uint8_t *at = p;
    if (len != MEMBER_RECORD_BYTES || get_wire(&at, 4) != MEMBER_MAGIC) return false;
    v->address_len = (uint16_t)get_wire(&at, 2);
    v->flags = (uint16_t)get_wire(&at, 2);
    v->nonce = get_wire(&at, 8);
    v->host = get_wire(&at, 8);
    v->cores = (uint32_t)get_wire(&at, 4);
    v->core = (uint32_t)get_wire(&at, 4);
    v->ranks_per_core = (uint32_t)get_wire(&at, 4);
    v->pid = (uint32_t)get_wire(&at, 4);
    v->fd = (uint32_t)get_wire(&at, 4);
    v->probe = get_wire(&at, 8);
    v->eager = get_wire(&at, 8);
    v->slot = get_wire(&at, 8);
    v->choices = get_wire(&at, 8);
    memcpy(v->address, at, sizeof v->address);
    return v->address_len <= sizeof v->address;
}
