/*
 * A member opens the memfd of another's exposed region through /proc, as it opens the team's
 * segment, and keeps the mapping for the next collective. An offer says how many exposed regions
 * its member has released so far: when that number grows, the reader drops what it has mapped of
 * that member. So the pages of a released region are free at the next collective that reads from
 * the same member, or at the end of the team.
 */
#define _GNU_SOURCE
#include "offered.h"

#include <base/counters.h>
#include <base/huge_pages.h>
#include <endpoints/memory/memory.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "collective.h"

/* Of one member: a source and a destination, and those of a second collective in turns with it. */
enum { WAYS = 4 };

struct offered_map {
    uint64_t inode;     /* 0: none */
    uint64_t released;  /* as the offer said by which it was mapped */
    struct pages pages; /* `map` NULL: it cannot be mapped */
};

struct offered_maps {
    uint32_t n, oldest;
    struct offered_map map[]; /* WAYS for each member of the team */
};

/* ---- this member's --------------------------------------------------------------------------- */

void weft__offered_place(const weft_team_t *team, const void *buffer, struct segment_place *place) {
    const weft_mem_t *mem = buffer ? weft__mem_exposed(team->worker, buffer, 1) : NULL;
    *place = (struct segment_place){.address = (uintptr_t)buffer};
    if (!mem || !mem->inode) return;
    uint64_t within = (uint64_t)((const uint8_t *)buffer - (const uint8_t *)mem->region.base);
    place->inode = mem->inode;
    place->offset = mem->region.fd_offset + within;
    place->len = mem->region.len - within;
    place->fd = (uint32_t)mem->region.fd;
}

/* ---- reading --------------------------------------------------------------------------------- */

bool weft__offered_stands(const weft_team_t *team, uint32_t rank) {
    const struct segment_member *member = &team->segment->member[rank];
    atomic_thread_fence(memory_order_acquire);
    return !atomic_load_explicit(&member->withdrawn, memory_order_relaxed);
}

const char weft__offer_withdrawn[] = "it has withdrawn its offer";

const char *weft__offered_read(const weft_team_t *team, uint32_t rank, uint64_t from, void *to,
                               size_t len) {
    const struct member_record *record = &team->record[rank];
    uint64_t nonce = 0;
    struct iovec here[] = {{&nonce, sizeof nonce}, {to, len}};
    struct iovec there[] = {{(void *)(uintptr_t)record->probe, sizeof nonce},
                            {(void *)(uintptr_t)from, len}};
    ssize_t n = process_vm_readv((pid_t)record->pid, here, 2, there, 2, 0);
    if (n < 0) return strerror(errno);
    if (n != (ssize_t)(sizeof nonce + len)) return "a part of it is not mapped there";
    if (nonce != record->nonce) return "another process has its number";
    return weft__offered_stands(team, rank) ? NULL : weft__offer_withdrawn;
}

/* ---- mapping --------------------------------------------------------------------------------- */

/* The descriptor was that of the member if its process is still there afterwards. */
static bool is_of_member(const weft_team_t *team, uint32_t rank, int fd, uint64_t inode) {
    uint64_t nonce, probe = team->record[rank].probe;
    struct stat stat;
    return fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode) && stat.st_ino == inode &&
           !weft__offered_read(team, rank, probe, &nonce, sizeof nonce);
}

static void map_place(const weft_team_t *team, uint32_t rank, const struct segment_place *place,
                      struct pages *pages) {
    char path[48];
    snprintf(path, sizeof path, "/proc/%u/fd/%u", team->record[rank].pid, place->fd);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return;
    off_t size = is_of_member(team, rank, fd, place->inode) ? lseek(fd, 0, SEEK_END) : -1;
    if (size > 0 && weft__pages_import(fd, 0, (size_t)size, false, pages) == WEFT_OK) {
        close(pages->fd);
        pages->fd = -1;
    }
    close(fd);
}

static void drop_map(struct offered_map *map) {
    if (map->inode) weft__pages_free(&map->pages);
    *map = (struct offered_map){0};
}

static struct offered_maps *maps_of(weft_team_t *team) {
    struct team_offers *offers = &team->offers;
    size_t n = (size_t)team->size * WAYS;
    if (offers->maps) return offers->maps;
    offers->maps =
        weft__alloc(team, sizeof *offers->maps + n * sizeof offers->maps->map[0], "maps");
    if (!offers->maps) return NULL;
    *offers->maps = (struct offered_maps){.n = (uint32_t)n};
    for (size_t i = 0; i < n; i++) offers->maps->map[i] = (struct offered_map){0};
    return offers->maps;
}

/* One that is free, or takes its turn. */
static struct offered_map *room_for(struct offered_maps *maps, struct offered_map *of_rank) {
    for (unsigned i = 0; i < WAYS; i++)
        if (!of_rank[i].inode) return &of_rank[i];
    return &of_rank[maps->oldest++ % WAYS];
}

static void drop_released(struct offered_map *of_rank, uint64_t released) {
    for (unsigned i = 0; i < WAYS; i++)
        if (of_rank[i].released != released) drop_map(&of_rank[i]);
}

static struct offered_map *find_map(weft_team_t *team, uint32_t rank, uint64_t released,
                                    const struct segment_place *place) {
    struct offered_maps *maps = maps_of(team);
    if (!maps) return NULL;
    struct offered_map *of_rank = &maps->map[rank * WAYS];
    for (unsigned i = 0; i < WAYS; i++)
        if (of_rank[i].inode == place->inode && of_rank[i].released == released) return &of_rank[i];
    drop_released(of_rank, released);
    struct offered_map *map = room_for(maps, of_rank);
    drop_map(map);
    *map = (struct offered_map){.inode = place->inode, .released = released, .pages = {.fd = -1}};
    map_place(team, rank, place, &map->pages);
    return map;
}

const uint8_t *weft__offered_map(weft_team_t *team, uint32_t rank,
                                 const struct segment_offer *offer,
                                 const struct segment_place *place, uint64_t at, uint64_t len) {
    if (!place->inode || at > place->len || len > place->len - at) return NULL;
    const struct offered_map *map = find_map(team, rank, offer->released, place);
    if (!map || !map->pages.map) return NULL;
    uint64_t size = map->pages.map_len, from = place->offset + at;
    if (from > size || len > size - from) return NULL;
    weft__count(team->reactor)->coll_mapped++;
    return (const uint8_t *)map->pages.map + from;
}

void weft__offered_unmap(weft_team_t *team) {
    struct offered_maps *maps = team->offers.maps;
    if (!maps) return;
    for (uint32_t i = 0; i < maps->n; i++) drop_map(&maps->map[i]);
    talloc_free(maps);
    team->offers.maps = NULL;
}
