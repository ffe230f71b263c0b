#include "leases.h"

#include "key_hash.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { BUCKETS = 1024, MOST = 4096, SHARE = 4, PAGE = 4096 };

struct lease {
    struct lease *next;          /* of its bucket */
    struct lease *older, *newer; /* of all */
    weft_mem_t *mem;
    size_t size; /* of its region */
    size_t key_len;
    char key[];
};

static size_t going; /* bytes of regions whose leases have ended, which clients still hold */

struct leases {
    weft_worker_t *worker;
    struct lease *bucket[BUCKETS];
    struct lease *oldest, *newest;
    unsigned n;
    size_t bytes;
    unsigned long long ended;
};

static struct lease **bucket_of(struct leases *leases, const void *key, size_t len) {
    return &leases->bucket[key_hash(key, len) % BUCKETS];
}

static struct lease **find(struct leases *leases, const void *key, size_t len) {
    struct lease **at = bucket_of(leases, key, len);
    while (*at && ((*at)->key_len != len || memcmp((*at)->key, key, len) != 0)) at = &(*at)->next;
    return at;
}

static void on_gone(weft_status_t status, void *arg) {
    struct lease *lease = arg;
    going -= lease->size;
    free(lease);
}

/* Its keys are invalid at once; the region goes when the last client has let go. */
static void end_lease(struct leases *leases, struct lease **at) {
    struct lease *lease = *at;
    *at = lease->next;
    if (lease->older)
        lease->older->newer = lease->newer;
    else
        leases->oldest = lease->newer;
    if (lease->newer)
        lease->newer->older = lease->older;
    else
        leases->newest = lease->older;
    leases->n--;
    leases->bytes -= lease->size;
    leases->ended++;
    going += lease->size;
    weft_op_t op = {.done = on_gone, .arg = lease};
    weft_status_t st = weft_mem_release(lease->mem, &op);
    if (st != WEFT_IN_PROGRESS) on_gone(st, lease);
}

static size_t size_of(size_t len) {
    return (len + PAGE - 1) / PAGE * PAGE;
}

static weft_status_t add(struct leases *leases, const void *key, size_t key_len, const void *value,
                         size_t len, weft_mem_t **mem_p) {
    weft_mem_info_t info;
    struct lease *lease = calloc(1, sizeof *lease + key_len);
    if (!lease) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = weft_mem_alloc(leases->worker, len,
                                      &(weft_mem_params_t){.rights = WEFT_MEM_READ}, &lease->mem);
    if (st == WEFT_OK) st = weft_mem_describe(lease->mem, &info);
    if (st < 0) {
        free(lease);
        return st;
    }
    memcpy(info.base, value, len);
    memcpy(lease->key, key, key_len);
    lease->key_len = key_len;
    lease->size = size_of(len);
    leases->bytes += lease->size;
    struct lease **at = bucket_of(leases, key, key_len);
    lease->next = *at;
    *at = lease;
    lease->older = leases->newest;
    if (lease->older)
        lease->older->newer = lease;
    else
        leases->oldest = lease;
    leases->newest = lease;
    leases->n++;
    *mem_p = lease->mem;
    return WEFT_OK;
}

/* Each has a descriptor, of which the server's ordinary clients need one each, too. */
static unsigned most(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur / SHARE >= MOST) return MOST;
    return limit.rlim_cur < 2 * SHARE ? 1 : (unsigned)(limit.rlim_cur / SHARE);
}

void leases_fit(struct leases *leases, size_t room) {
    while (leases->bytes > room) leases_end(leases, leases->oldest->key, leases->oldest->key_len);
}

static weft_status_t make_room(struct leases *leases, size_t len, size_t room) {
    if (size_of(len) > room || room - size_of(len) < going) return WEFT_ERR_REJECTED;
    leases_fit(leases, room - size_of(len) - going);
    return WEFT_OK;
}

weft_status_t leases_give(struct leases *leases, const void *key, size_t key_len, const void *value,
                          size_t len, uint64_t *address_p, void *packed, size_t *packed_len_p,
                          size_t room) {
    weft_mem_info_t info;
    struct lease *known = *find(leases, key, key_len);
    weft_mem_t *mem = known ? known->mem : NULL;
    weft_status_t st = known ? WEFT_OK : make_room(leases, len, room);
    if (st == WEFT_OK && !known) st = add(leases, key, key_len, value, len, &mem);
    if (st == WEFT_OK) st = weft_mem_describe(mem, &info);
    if (st == WEFT_OK) st = weft_mem_pack(mem, packed, packed_len_p);
    if (st < 0) return st;
    *address_p = (uint64_t)(uintptr_t)info.base;
    unsigned left = known ? leases->n : most();
    while (leases->n > left) leases_end(leases, leases->oldest->key, leases->oldest->key_len);
    return WEFT_OK;
}

void leases_end(struct leases *leases, const void *key, size_t key_len) {
    struct lease **at = find(leases, key, key_len);
    if (*at) end_lease(leases, at);
}

struct leases *leases_create(weft_worker_t *worker) {
    struct leases *leases = calloc(1, sizeof *leases);
    if (leases) leases->worker = worker;
    return leases;
}

void leases_end_all(struct leases *leases) {
    while (leases->oldest) leases_end(leases, leases->oldest->key, leases->oldest->key_len);
}

void leases_free(struct leases *leases) {
    if (!leases) return;
    leases_end_all(leases);
    free(leases);
}

unsigned leases_count(const struct leases *leases) {
    return leases ? leases->n : 0;
}
size_t leases_bytes(const struct leases *leases) {
    return leases ? leases->bytes : 0;
}
unsigned long long leases_ended(const struct leases *leases) {
    return leases ? leases->ended : 0;
}
