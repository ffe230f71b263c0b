/* Fills and checks the message that passes a resource to another process. */
#include "passed.h"

#include <base/status.h>
#include <string.h>

/* Another one with each layout. */
static const char magic[8] = "weftrs3";

const char *weft__passed_fd_key(weft_resource_kind_t kind) {
    static const char *const keys[WEFT_N_RESOURCE_KINDS] = {
        [WEFT_RESOURCE_SEGMENT] = WEFT_RES_MEMORY_FD,
        [WEFT_RESOURCE_SOCKET] = WEFT_RES_WORKER_SOCKET,
        [WEFT_RESOURCE_CONNECTION] = WEFT_RES_ENDPOINT_SOCKET};
    return keys[kind];
}

void weft__passed_init(struct passed *passed, weft_resource_kind_t kind, const char *name) {
    memset(passed, 0, sizeof *passed);
    memcpy(passed->magic, magic, sizeof magic);
    passed->abi = WEFT_RESOURCE_ABI;
    passed->kind = kind;
    strncpy(passed->name, name, sizeof passed->name - 1);
}

static bool is_well_formed(const struct passed *passed, unsigned n_fds) {
    if (passed->kind >= WEFT_N_RESOURCE_KINDS) return false;
    if (passed->kind == WEFT_RESOURCE_MEMORY)
        return n_fds == 0 && passed->len == passed->device.len;
    return n_fds == 1 && (passed->kind == WEFT_RESOURCE_VERBS ||
                          weft__passed_fd_key((weft_resource_kind_t)passed->kind));
}

weft_status_t weft__passed_read(const void *bytes, size_t len, unsigned n_fds,
                                struct passed *passed_p) {
    struct passed passed;
    if (len != sizeof passed || memcmp(bytes, magic, sizeof magic) != 0)
        return weft__fail(WEFT_ERR_PROTOCOL, "the message is no resource");
    memcpy(&passed, bytes, sizeof passed);
    if (passed.abi != WEFT_RESOURCE_ABI)
        return weft__fail(WEFT_ERR_VERSION_MISMATCH, "the sender has version %u of the layout",
                          passed.abi);
    if (!is_well_formed(&passed, n_fds))
        return weft__fail(WEFT_ERR_PROTOCOL, "kind %u with %u descriptors is no resource",
                          passed.kind, n_fds);
    passed.name[sizeof passed.name - 1] = 0;
    *passed_p = passed;
    return WEFT_OK;
}
