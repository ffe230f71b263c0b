/* Writing the statistics page (stats_page.h). */
#include "stats_page.h"

#include <base/sealed.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <endpoints/core/link.h>
#include <endpoints/core/worker.h>
#include <endpoints/lanes/negotiate_local.h>
#include <endpoints/lanes/switch_local.h>
#include <endpoints/lanes/usage_worker.h>

struct live {
    struct stats_head *head; /* the page */
    struct stats_row *rows;
    size_t size;
    int fd;
    uint32_t n_used;
    struct link *link[LIVE_LINKS]; /* of each row; NULL: the row is free */
};

/* ---- the page */

static size_t round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

static size_t put_names(char *to) {
    const char *name;
    size_t len = 0;
    for (size_t i = 0; weft__counter_at(NULL, i, &name, NULL, NULL); i++) {
        size_t n = strlen(name) + 1;
        if (to) memcpy(to + len, name, n);
        len += n;
    }
    return len;
}

static void text(char *to, size_t size, const char *from) {
    size_t len = from ? strnlen(from, size - 1) : 0;
    memset(to, 0, size);
    if (len) memcpy(to, from, len);
}

/* Rows and counters start at cache lines. */
static struct stats_head layout(const struct weft_worker *worker) {
    struct stats_head head = {.version = LIVE_VERSION,
                              .worker = worker->id,
                              .pid = getpid(),
                              .n_counters = sizeof(struct counters) / sizeof(uint64_t),
                              .n_rows = LIVE_LINKS,
                              .row_size = sizeof(struct stats_row)};
    head.counters_at = (uint32_t)round_up(sizeof head, 64);
    head.rows_at = head.counters_at + (uint32_t)round_up(sizeof(struct counters), 64);
    head.names_at = head.rows_at + head.n_rows * head.row_size;
    head.names_len = (uint32_t)put_names(NULL);
    head.size = (uint32_t)round_up(head.names_at + head.names_len, (size_t)sysconf(_SC_PAGESIZE));
    text(head.name, sizeof head.name, worker->name);
    return head;
}

/* Seals: the page cannot shrink, and other processes cannot write to it. */
static bool make_page(struct live *live, const struct stats_head *head) {
    void *at;
    live->fd = weft__sealed_make(LIVE_NAME, head->size, SEALED_FILLED | SEALED_MINE, 0, &at);
    if (live->fd < 0) return false;
    char *page = at;
    live->head = (struct stats_head *)page;
    live->rows = (struct stats_row *)(page + head->rows_at);
    live->size = head->size;
    *live->head = *head;
    put_names(page + head->names_at);
    return true;
}

void weft__stats_open(struct weft_worker *worker) {
    if (!weft__setting_u64(worker->context, SETTING_WORKER_LIVE) ||
        weft__reactor_virtual(worker->reactor))
        return;
    struct live *live = weft__new(worker, struct live);
    const struct stats_head head = layout(worker);
    if (!live || !make_page(live, &head)) {
        weft__log(worker->context, WEFT_LOG_INFO, "endpoints",
                  "weft-info --live cannot show this worker: %s",
                  live ? strerror(errno) : "no memory");
        talloc_free(live);
        return;
    }
    worker->live = live;
    weft__count_in(worker->reactor, (struct counters *)((char *)live->head + head.counters_at));
    worker->count = weft__count(worker->reactor);
    /* The magic comes last: readers ignore a page without it. */
    atomic_thread_fence(memory_order_release);
    memcpy(live->head->magic, LIVE_MAGIC, sizeof live->head->magic);
}

void weft__stats_transports(struct weft_worker *worker) {
    struct live *live = worker->live;
    if (!live) return;
    char names[sizeof live->head->transports] = "";
    for (uint32_t i = 0; i < worker->n_ifaces; i++) {
        const char *name = worker->iface[i]->transport->name;
        if (strlen(names) + strlen(name) + 2 > sizeof names) break;
        if (i) strcat(names, ",");
        strcat(names, name);
    }
    text(live->head->transports, sizeof names, names);
}

void weft__stats_resource(struct weft_worker *worker, uint32_t index, const char *line) {
    if (worker->live && index < LIVE_RESOURCES)
        text(worker->live->head->resource[index], LIVE_RESOURCE, line);
}

void weft__stats_late(struct weft_worker *worker, uint32_t index, uint64_t since,
                      const char *line) {
    if (!worker->live || index >= LIVE_LATE) return;
    worker->live->head->late_since[index] = since;
    text(worker->live->head->late[index], LIVE_RESOURCE, line);
}

/* All links have gone. Later counts are not in the page. */
void weft__stats_end(struct weft_worker *worker) {
    struct live *live = worker->live;
    if (!live) return;
    worker->live = NULL;
    weft__count_in(worker->reactor, NULL);
    worker->count = weft__count(worker->reactor);
    munmap(live->head, live->size);
    close(live->fd);
    talloc_free(live);
}

/* ---- what is said of a link */

static bool promoted(const struct link *link) {
    const struct tracking *t = link->worker->tracking;
    return t && t->usage && weft__usage_promoted(t->usage, link);
}

uint64_t weft__link_score(const struct link *link) {
    const struct tracking *t = link->worker->tracking;
    return t && t->usage ? weft__usage_score(t->usage, link) : 0;
}

/* The lane may have a decorator in front of it (lanes/switch_limit.c). */
bool weft__link_is_fast(const struct link *link) {
    const struct switching *s = link->more->switching;
    const struct lane *lane = s ? s->lane[s->core.out] : NULL;
    return lane ? lane->scarce : link->lane->scarce;
}

const char *weft__link_negotiation(const struct link *link) {
    return link->more->lane_negotiation ? fsm_state_name(&link->more->lane_negotiation->n.fsm) : "";
}

const char *weft__link_switching(const struct link *link) {
    return link->more->switching ? fsm_state_name(&link->more->switching->core.fsm) : "";
}

/* ---- rows */

static struct stats_row *row_of(const struct link *link) {
    return &link->worker->live->rows[link->stats_row - 1];
}

static void begin_write(struct stats_row *row) {
    atomic_store_explicit(&row->sequence, row->sequence + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}
static void end_write(struct stats_row *row) {
    atomic_store_explicit(&row->sequence, row->sequence + 1, memory_order_release);
}

static void leave_row(struct link *link) {
    struct stats_row *row = row_of(link);
    link->worker->live->link[link->stats_row - 1] = NULL;
    link->worker->live->n_used--;
    link->stats_row = 0;
    begin_write(row);
    row->flags = 0;
    end_write(row);
}

static uint32_t free_row(const struct live *live) {
    uint32_t at = 0;
    while (live->n_used < LIVE_LINKS && live->link[at]) at++;
    return live->n_used < LIVE_LINKS ? at : LIVE_LINKS;
}

/* The row of the link with the lowest score that is not promoted. */
static uint32_t least_row(const struct live *live) {
    uint32_t least = LIVE_LINKS;
    for (uint32_t i = 0; i < LIVE_LINKS; i++)
        if (!promoted(live->link[i]) &&
            (least == LIVE_LINKS ||
             weft__link_score(live->link[i]) < weft__link_score(live->link[least])))
            least = i;
    return least;
}

/* If no row is free, only a promoted link replaces another one. */
static bool take_row(struct link *link) {
    struct live *live = link->worker->live;
    uint32_t at = free_row(live);
    if (at == LIVE_LINKS && promoted(link)) at = least_row(live);
    if (at == LIVE_LINKS) return false;
    if (live->link[at]) leave_row(live->link[at]);
    live->n_used++;
    live->link[at] = link;
    link->stats_row = (uint16_t)(at + 1);
    return true;
}

static uint32_t flags_of(const struct link *link) {
    return LIVE_USED | (link->dialed ? LIVE_DIALED : 0u) | (promoted(link) ? LIVE_PROMOTED : 0u) |
           (weft__link_is_fast(link) ? LIVE_SCARCE : 0u);
}

static void write_row(const struct link *link, bool where) {
    struct stats_row *row = row_of(link);
    const char *way = link->lane->iface->transport->name;
    begin_write(row);
    row->flags = flags_of(link);
    row->peer = link->peer;
    row->score = weft__link_score(link);
    row->sent = link->sent;
    row->received = link->received;
    row->written = weft__now(link->worker->reactor);
    atomic_store_explicit(&row->n_endpoints, link->n_endpoints, memory_order_relaxed);
    row->n_lanes = link->n_lanes;
    if (where) link->lane->ops->describe(link->lane, row->where, sizeof row->where);
    text(row->transport, sizeof row->transport, way);
    text(row->link, sizeof row->link, fsm_state_name(&link->core.fsm));
    text(row->negotiation, sizeof row->negotiation, weft__link_negotiation(link));
    text(row->switching, sizeof row->switching, weft__link_switching(link));
    end_write(row);
}

void weft__stats_endpoints(struct link *link) {
    if (link->stats_row)
        atomic_store_explicit(&row_of(link)->n_endpoints, link->n_endpoints, memory_order_relaxed);
}

static void write_head(const struct weft_worker *worker) {
    const struct tracking *t = worker->tracking;
    struct stats_head *head = worker->live->head;
    atomic_store_explicit(&head->n_links, worker->n_lanes, memory_order_relaxed);
    if (!t || !t->usage) return;
    atomic_store_explicit(&head->n_promoted, weft__usage_n_promoted(t->usage),
                          memory_order_relaxed);
    atomic_store_explicit(&head->capacity, weft__usage_places(t->usage), memory_order_relaxed);
}

/* A link that has ended may have no lane to describe. */
void weft__stats_note(struct link *link) {
    if (!link->worker->live || link_is_closed(&link->core.fsm)) return;
    write_head(link->worker);
    if (link->stats_row || take_row(link)) write_row(link, true);
}

void weft__stats_scores(struct weft_worker *worker) {
    struct link *link;
    if (!worker->live) return;
    for (uint32_t at = 0; (link = weft__usage_next(worker->tracking->usage, &at)) != NULL;) {
        if (link->stats_row)
            write_row(link, false);
        else if (promoted(link))
            weft__stats_note(link);
    }
    write_head(worker);
}

void weft__stats_forget(struct link *link) {
    if (!link->worker->live) return;
    if (link->stats_row) leave_row(link);
    write_head(link->worker);
}
