/* Address handles, by which a device addresses a port. Some are kernel objects, so lanes share
 * them. */
#include "ud.h"

#include <base/hash.h>
#include <errno.h>
#include <string.h>

enum { BUCKETS = 1024 };

/* What distinguishes ports: a GID, or in the own subnet of InfiniBand a LID. */
static struct rd_place key_of(const struct ud_paths *paths, const struct rd_place *place) {
    const struct rd_place *mine = &paths->device->place;
    struct rd_place key = {.link = place->link, .mtu = mine->mtu};
    memcpy(key.gid, place->gid, sizeof key.gid);
    if (place->link != RD_LINK_INFINIBAND || memcmp(place->gid, mine->gid, 8) != 0) return key;
    memset(key.gid + 8, 0, 8);
    key.lid = place->lid;
    return key;
}

static struct ud_path **bucket_of(const struct ud_paths *paths, const struct rd_place *key) {
    uint64_t hash =
        hash_more(hash_more(HASH_BEGIN, key->gid, sizeof key->gid), &key->lid, sizeof key->lid);
    return &paths->bucket[(hash ^ hash >> 32) % BUCKETS];
}

static bool is_same(const struct rd_place *a, const struct rd_place *b) {
    return memcmp(a->gid, b->gid, sizeof a->gid) == 0 && a->lid == b->lid && a->link == b->link;
}

static struct ud_path *find_path(const struct ud_paths *paths, const struct rd_place *key) {
    struct ud_path *path = *bucket_of(paths, key);
    while (path && !is_same(&path->place, key)) path = path->next;
    return path;
}

struct ud_path *weft__ud_path_find(const struct ud_paths *paths, const struct rd_place *place) {
    struct rd_place key = key_of(paths, place);
    return find_path(paths, &key);
}

weft_status_t weft__ud_paths_open(struct ud_paths *paths, struct rd_device *device,
                                  const void *parent, unsigned most) {
    paths->device = device;
    paths->parent = parent;
    paths->most = most;
    paths->gid_index = device->gid_index;
    TAILQ_INIT(&paths->idle);
    paths->bucket = weft__alloc(parent, BUCKETS * sizeof *paths->bucket, "rdma paths");
    return paths->bucket ? WEFT_OK : weft__fail(WEFT_ERR_NO_MEMORY, "no memory for rdma paths");
}

static void destroy(struct ud_paths *paths, struct ud_path *path) {
    struct ud_path **at = bucket_of(paths, &path->place);
    while (*at != path) at = &(*at)->next;
    *at = path->next;
    TAILQ_REMOVE(&paths->idle, path, idle);
    if (path->ah) ibv_destroy_ah(path->ah);
    paths->n--;
    talloc_free(path);
}

/* The longest idle one goes, if no send under way needs it. */
static bool make_room(struct ud_paths *paths, uint64_t done) {
    if (paths->n < paths->most) return true;
    struct ud_path *oldest = TAILQ_FIRST(&paths->idle);
    if (!oldest || oldest->until > done) return false;
    destroy(paths, oldest);
    return true;
}

static weft_status_t open_handle(struct ud_paths *paths, struct ud_path *path) {
    struct ibv_ah_attr attr;
    if (!weft__rd_reach(paths->device, &path->place, &attr))
        return weft__fail(WEFT_ERR_UNREACHABLE, "the peer uses another link layer");
    path->gid_index = paths->device->gid_index;
    path->ah = ibv_create_ah(paths->device->pd, &attr);
    return path->ah ? WEFT_OK : weft__rd_fail("ibv_create_ah", errno);
}

static weft_status_t make_path(struct ud_paths *paths, const struct rd_place *key,
                               struct ud_path **path_p) {
    struct ud_path *path = weft__new(paths->parent, struct ud_path);
    if (!path) return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for an rdma path");
    path->place = *key;
    weft_status_t st = open_handle(paths, path);
    if (st < 0) {
        talloc_free(path);
        return st;
    }
    struct ud_path **at = bucket_of(paths, key);
    path->next = *at;
    *at = path;
    paths->n++;
    *path_p = path;
    return WEFT_OK;
}

weft_status_t weft__ud_path_hold(struct ud_paths *paths, const struct rd_place *place,
                                 uint64_t done, struct ud_path **path_p) {
    struct rd_place key = key_of(paths, place);
    struct ud_path *path = find_path(paths, &key);
    if (!path) {
        if (!make_room(paths, done))
            return weft__fail(WEFT_ERR_QUOTA,
                              "%u address handles are in use (rdma.ud_address_handles)", paths->n);
        weft_status_t st = make_path(paths, &key, &path);
        if (st < 0) return st;
    } else {
        weft_status_t st = path->ah ? WEFT_OK : open_handle(paths, path);
        if (st < 0) return st;
        if (path->refs == 0) TAILQ_REMOVE(&paths->idle, path, idle);
    }
    path->refs++;
    *path_p = path;
    return WEFT_OK;
}

void weft__ud_path_drop(struct ud_paths *paths, struct ud_path *path, uint64_t until) {
    if (path->until < until) path->until = until;
    if (--path->refs == 0) TAILQ_INSERT_TAIL(&paths->idle, path, idle);
}

/* ---- when our GID moved ---------------------------------------------------------------------- */

bool weft__ud_paths_are_old(const struct ud_paths *paths) {
    return paths->gid_index != paths->device->gid_index;
}

static bool renew(struct ud_paths *paths, struct ud_path *path) {
    struct ibv_ah_attr attr;
    struct ibv_ah *ah = weft__rd_reach(paths->device, &path->place, &attr)
                            ? ibv_create_ah(paths->device->pd, &attr)
                            : NULL;
    if (!ah) return false;
    ibv_destroy_ah(path->ah);
    path->ah = ah;
    path->gid_index = attr.grh.sgid_index;
    return true;
}

void weft__ud_paths_renew(struct ud_paths *paths) {
    uint8_t index = paths->device->gid_index;
    struct ud_path *path;
    bool all = true;
    while ((path = TAILQ_FIRST(&paths->idle)) && path->gid_index != index) destroy(paths, path);
    for (unsigned i = 0; i < BUCKETS; i++)
        for (path = paths->bucket[i]; path; path = path->next)
            if (path->ah && path->gid_index != index) all = renew(paths, path) && all;
    if (all) paths->gid_index = index;
}

void weft__ud_paths_move(struct ud_paths *paths, struct rd_device *device) {
    paths->device = device;
    paths->gid_index = device->gid_index;
}

void weft__ud_paths_end(struct ud_paths *paths) {
    for (unsigned i = 0; paths->bucket && i < BUCKETS; i++)
        for (struct ud_path *path = paths->bucket[i]; path; path = path->next) {
            if (path->ah) ibv_destroy_ah(path->ah);
            path->ah = NULL;
        }
}
