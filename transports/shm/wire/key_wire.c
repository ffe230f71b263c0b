/* Decoder of messages about keys, and the bytes of a key. */
#include "key_wire.h"
#include <string.h>
#include <transports/region.h>

bool weft__shm_is_key_word(const void *data, size_t len) {
    struct shm_head head;
    if (len < sizeof head) return false;
    memcpy(&head, data, sizeof head);
    return head.magic == SHM_MAGIC && head.version == SHM_VERSION && head.kind >= SHM_WANT &&
           head.kind <= SHM_DROP;
}

static weft_status_t want_check(const struct shm_want *w) {
    if (w->rights == 0 || !rights_are_known(w->rights)) return WEFT_ERR_PROTOCOL;
    if (w->ways == 0 || w->ways & ~(uint32_t)SHM_WAYS) return WEFT_ERR_PROTOCOL;
    return w->base + w->len < w->base ? WEFT_ERR_PROTOCOL : WEFT_OK;
}

static weft_status_t grant_check(const struct shm_grant_word *g) {
    if (g->way != SHM_WAY_MAP && g->way != SHM_WAY_VM && g->way != SHM_WAY_DEVICE)
        return WEFT_ERR_PROTOCOL;
    return g->offset % SHM_PAGE != 0 || g->offset > INT64_MAX ? WEFT_ERR_PROTOCOL : WEFT_OK;
}

static weft_status_t read_grant(struct shm_key_word *word, const void *data, size_t len) {
    struct shm_device_grant with;
    bool has_device = len == sizeof with;
    if (len != sizeof with.grant && !has_device) return WEFT_ERR_PROTOCOL;
    memcpy(&with, data, len);
    word->grant = with.grant;
    word->serial = with.grant.serial;
    if (has_device) word->device = with.device;
    return has_device == (with.grant.way == SHM_WAY_DEVICE) ? grant_check(&with.grant)
                                                            : WEFT_ERR_PROTOCOL;
}

static bool read_all(void *to, size_t size, const void *data, size_t len) {
    if (len != size) return false;
    memcpy(to, data, size);
    return true;
}

weft_status_t weft__shm_key_decode(const void *data, size_t len, struct shm_key_word *word_p) {
    struct shm_head head;
    struct shm_deny deny;
    struct shm_serial serial;
    if (!weft__shm_is_key_word(data, len)) return WEFT_ERR_PROTOCOL;
    memcpy(&head, data, sizeof head);
    word_p->kind = head.kind;
    switch (word_p->kind) {
    case SHM_WANT:
        if (!read_all(&word_p->want, sizeof word_p->want, data, len)) return WEFT_ERR_PROTOCOL;
        word_p->serial = word_p->want.serial;
        return want_check(&word_p->want);
    case SHM_GRANT: return read_grant(word_p, data, len);
    case SHM_DENY:
        if (!read_all(&deny, sizeof deny, data, len)) return WEFT_ERR_PROTOCOL;
        word_p->serial = deny.serial;
        word_p->status = deny.status < 0 && deny.status >= WEFT_STATUS_LAST
                             ? (weft_status_t)deny.status
                             : WEFT_ERR_REJECTED;
        return WEFT_OK;
    default:
        if (!read_all(&serial, sizeof serial, data, len)) return WEFT_ERR_PROTOCOL;
        word_p->serial = serial.serial;
        return WEFT_OK;
    }
}

void weft__shm_key_encode(uint32_t ways, uint8_t to[SHM_KEY_LEN]) {
    to[0] = SHM_VERSION;
    to[1] = (uint8_t)ways;
}

uint32_t weft__shm_key_ways(const void *data, size_t len) {
    uint8_t key[SHM_KEY_LEN];
    if (len != sizeof key) return 0;
    memcpy(key, data, sizeof key);
    return key[0] == SHM_VERSION ? key[1] & (uint32_t)SHM_WAYS : 0;
}
