#include "mapped.h"
#include "commons.h"
#include <reactor/reactor.h>
#include <sys/stat.h>

static bool is_it(const struct mapped *mapped, const struct stat *st, bool writable) {
    return mapped->inode == st->st_ino && mapped->device == st->st_dev && mapped->writable == writable;
}

static weft_status_t map(struct mapped **bucket, const struct stat *of, int fd, size_t size, bool writable,
                         struct mapped **mapped_p) {
    struct mapped *mapped = weft__new(NULL, struct mapped);
    if (!mapped) return WEFT_ERR_NO_MEMORY;
    *mapped = (struct mapped){.next = *bucket, .device = of->st_dev, .inode = of->st_ino, .writable = writable};
    weft_status_t st = weft__segment_map(&mapped->segment, fd, size, writable);
    if (st < 0) {
        talloc_free(mapped);
        return st;
    }
    *bucket = *mapped_p = mapped;
    return WEFT_OK;
}

/* One that is mapped was looked at then; its seals stay. */
static weft_status_t find(struct mapped **bucket, const struct stat *of, int fd, size_t size, bool writable,
                          struct mapped **mapped_p) {
    struct mapped *mapped = *bucket;
    while (mapped && !is_it(mapped, of, writable)) mapped = mapped->next;
    if (!mapped) return map(bucket, of, fd, size, writable, mapped_p);
    if (mapped->segment.size != size)
        return weft__fail(WEFT_ERR_PROTOCOL, "shm: the peer's memory is not as large as it was");
    *mapped_p = mapped;
    return WEFT_OK;
}

weft_status_t weft__mapped_get(int fd, size_t size, bool writable, struct mapped **mapped_p) {
    struct stat of;
    if (fstat(fd, &of) < 0) return weft__fail(WEFT_ERR_PROTOCOL, "shm: a descriptor that is none");
    struct commons *commons = weft__commons_enter();
    struct mapped *mapped = NULL;
    weft_status_t st = find(&commons->mapped[of.st_ino % COMMONS_BUCKETS], &of, fd, size, writable, &mapped);
    if (st == WEFT_OK) {
        mapped->n_users++;
        *mapped_p = mapped;
    }
    weft__commons_leave();
    return st;
}

bool weft__mapped_is(const struct mapped *mapped, int fd) {
    struct stat of;
    return fstat(fd, &of) == 0 && is_it(mapped, &of, mapped->writable);
}

void weft__mapped_put(struct mapped *mapped) {
    if (!mapped) return;
    struct commons *commons = weft__commons_enter();
    if (--mapped->n_users == 0) {
        struct mapped **at = &commons->mapped[mapped->inode % COMMONS_BUCKETS];
        while (*at && *at != mapped) at = &(*at)->next; /* a fork's child does not find its parent's */
        if (*at) *at = mapped->next;
        weft__segment_close(&mapped->segment);
        talloc_free(mapped);
    }
    weft__commons_leave();
}
