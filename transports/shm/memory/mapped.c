/* Maps segments of peers once in this process, and counts their users. */
#include "mapped.h"
#include "process_globals.h"
#include <reactor/reactor.h>
#include <sys/stat.h>

static bool is_it(const struct mapped *mapped, const struct stat *st, bool writable) {
    return mapped->inode == st->st_ino && mapped->device == st->st_dev &&
           mapped->writable == writable;
}

static weft_status_t map_mapping(struct mapped **bucket, const struct stat *of, int fd, size_t size,
                                 bool writable, struct mapped **mapped_p) {
    struct mapped *mapped = weft__new(NULL, struct mapped);
    if (!mapped) return WEFT_ERR_NO_MEMORY;
    *mapped = (struct mapped){
        .next = *bucket, .device = of->st_dev, .inode = of->st_ino, .writable = writable};
    weft_status_t st = weft__segment_map(&mapped->segment, fd, size, writable);
    if (st < 0) {
        talloc_free(mapped);
        return st;
    }
    *bucket = *mapped_p = mapped;
    return WEFT_OK;
}

/* A mapping's seals were checked when it was made, and seals stay. */
static weft_status_t find_mapping(struct mapped **bucket, const struct stat *of, int fd,
                                  size_t size, bool writable, struct mapped **mapped_p) {
    struct mapped *mapped = *bucket;
    while (mapped && !is_it(mapped, of, writable)) mapped = mapped->next;
    if (!mapped) return map_mapping(bucket, of, fd, size, writable, mapped_p);
    if (mapped->segment.size != size)
        return weft__fail(WEFT_ERR_PROTOCOL, "shm: the peer's memory has shrunk");
    *mapped_p = mapped;
    return WEFT_OK;
}

weft_status_t weft__mapped_get(int fd, size_t size, bool writable, struct mapped **mapped_p) {
    struct stat of;
    if (fstat(fd, &of) < 0)
        return weft__fail(WEFT_ERR_PROTOCOL, "shm: the peer passed an invalid descriptor");
    struct process_globals *process_globals = weft__process_globals_enter();
    struct mapped *mapped = NULL;
    weft_status_t st = find_mapping(&process_globals->mapped[of.st_ino % PROCESS_GLOBALS_BUCKETS],
                                    &of, fd, size, writable, &mapped);
    if (st == WEFT_OK) {
        mapped->n_users++;
        *mapped_p = mapped;
    }
    weft__process_globals_leave();
    return st;
}

bool weft__mapped_is(const struct mapped *mapped, int fd) {
    struct stat of;
    return fstat(fd, &of) == 0 && is_it(mapped, &of, mapped->writable);
}

void weft__mapped_put(struct mapped *mapped) {
    if (!mapped) return;
    struct process_globals *process_globals = weft__process_globals_enter();
    if (--mapped->n_users == 0) {
        struct mapped **at = &process_globals->mapped[mapped->inode % PROCESS_GLOBALS_BUCKETS];
        /* the child of a fork does not find its parent's */
        while (*at && *at != mapped) at = &(*at)->next;
        if (*at) *at = mapped->next;
        weft__segment_close(&mapped->segment);
        talloc_free(mapped);
    }
    weft__process_globals_leave();
}
