/* Decoders of the messages on an attachment's socket, and the address of an interface. */
#include "wire.h"
#include <string.h>

static int power_of_two(uint32_t n, uint32_t least, uint32_t most) {
    return n >= least && n <= most && (n & (n - 1)) == 0;
}

static weft_status_t hello_check(const struct shm_hello *h) {
    if (h->n_slots || h->payload_size) {
        if (!power_of_two(h->n_slots, 16, SHM_MAX_SLOTS)) return WEFT_ERR_PROTOCOL;
        if (!power_of_two(h->payload_size, 4096, SHM_MAX_PAYLOAD)) return WEFT_ERR_PROTOCOL;
    }
    if (!power_of_two(h->n_nodes, 16, SHM_MAX_NODES) ||
        !power_of_two(h->n_blocks, 1, SHM_MAX_BLOCKS))
        return WEFT_ERR_PROTOCOL;
    if (h->staging_size > SHM_MAX_STAGING || h->staging_size % 4096 != 0 || h->staging_size == 0)
        return WEFT_ERR_PROTOCOL;
    if (h->place >= SHM_SLOTS) return WEFT_ERR_PROTOCOL;
    return WEFT_OK;
}

weft_status_t weft__shm_decode(const void *data, size_t len, enum shm_kind *kind_p,
                               struct shm_hello *hello_p, weft_status_t *status_p) {
    struct shm_head head;
    if (len < sizeof head) return WEFT_ERR_PROTOCOL;
    memcpy(&head, data, sizeof head);
    if (head.magic != SHM_MAGIC) return WEFT_ERR_PROTOCOL;
    if (head.version != SHM_VERSION) return WEFT_ERR_VERSION;
    *kind_p = head.kind;
    switch (head.kind) {
    case SHM_HELLO:
    case SHM_WELCOME:
        if (len != sizeof *hello_p) return WEFT_ERR_PROTOCOL;
        memcpy(hello_p, data, sizeof *hello_p);
        return hello_check(hello_p);
    case SHM_NO: {
        struct shm_no no;
        if (len != sizeof no) return WEFT_ERR_PROTOCOL;
        memcpy(&no, data, sizeof no);
        *status_p = no.status < 0 && no.status >= WEFT_STATUS_LAST ? (weft_status_t)no.status
                                                                   : WEFT_ERR_REJECTED;
        return WEFT_OK;
    }
    case SHM_BYE:
    case SHM_QUIT: return len == sizeof head ? WEFT_OK : WEFT_ERR_PROTOCOL;
    default: return WEFT_ERR_PROTOCOL;
    }
}

size_t weft__shm_address_encode(const struct shm_address *address, void *buf, size_t room) {
    size_t len = offsetof(struct shm_address, directory) + strlen(address->directory) + 1;
    if (len > room) return 0;
    memcpy(buf, address, len);
    return len;
}

weft_status_t weft__shm_address_decode(const void *data, size_t len,
                                       struct shm_address *address_p) {
    struct shm_address a = {0};
    if (len <= offsetof(struct shm_address, directory) + 1 || len > sizeof a)
        return WEFT_ERR_ADDRESS;
    memcpy(&a, data, len);
    if (a.version != SHM_VERSION || a.directory[0] != '/') return WEFT_ERR_ADDRESS;
    if (memchr(a.directory, 0, sizeof a.directory) != (const char *)&a + len - 1)
        return WEFT_ERR_ADDRESS;
    *address_p = a;
    return WEFT_OK;
}
