/* A message that gives a resource to another process, with 0 to 3 descriptors: what is accepted has
 * a kind that is sent, its descriptor or one length of device memory, and a name that ends. */
#include "fuzz.h"
#include <resource/passed.h>

/* The first byte: the descriptors, and whether the rest is written over a well-formed head. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct passed passed, made;
    if (size == 0) return 0;
    unsigned n_fds = data[0] % 4;
    uint8_t *exact = malloc(sizeof made + size);
    insist(exact != NULL);
    size_t len = size - 1;
    if (data[0] & 4) {
        weft__passed_init(&made, (weft_resource_kind_t)(data[0] >> 3), "name");
        memcpy(exact, &made, sizeof made);
        size_t after = offsetof(struct passed, len);
        if (len > sizeof made - after) len = sizeof made - after;
        memcpy(exact + after, data + 1, len);
        len = sizeof made;
    } else {
        memcpy(exact, data + 1, len);
    }
    exact = realloc(exact, len ? len : 1);
    insist(exact != NULL);
    if (weft__passed_read(exact, len, n_fds, &passed) == WEFT_OK) {
        weft_resource_kind_t kind = (weft_resource_kind_t)passed.kind;
        insist(len == sizeof passed && kind < WEFT_N_RESOURCE_KINDS);
        insist(memchr(passed.name, 0, sizeof passed.name) != NULL);
        if (n_fds)
            insist(n_fds == 1 && (kind == WEFT_RESOURCE_VERBS || weft__passed_fd_key(kind)));
        else
            insist(kind == WEFT_RESOURCE_MEMORY && passed.len == passed.device.len);
    }
    free(exact);
    return 0;
}
