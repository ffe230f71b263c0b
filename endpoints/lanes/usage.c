/* The usage tracker: notes links, scores them each tick, and decides which to promote and
 * demote. */
#include "usage.h"

#include <reactor/reactor.h>
#include <string.h>

#include <base/list.h>

enum {
    CAPACITY_MAX = 4096,
    RECENT_MIN = 8,
    TABLE_MIN = 16,
    OLDEST = 4 /* the lightest of the least recently used links makes room */
};

/* A noted link: recently used, or with a score. */
struct entry {
    void *key; /* NULL: free */
    struct list of_recent;
    struct entry *next; /* of its bucket */
    uint64_t gathered;  /* units since the last tick */
    double score, min;  /* as seen here; as the peer sees it */
    double rank;        /* of the tick under way */
    uint64_t born;      /* breaks ties: the older link first */
    uint64_t tick;      /* the last that scored it */
    bool scored, promoted, demoted;
    bool early; /* USAGE_EARLY was returned since the last tick */
};

struct usage {
    struct usage_params p;
    struct usage_hooks hooks;
    uint32_t n_promoted, n_recent;
    uint32_t n_entries, n_buckets, table; /* the last: how many with a score are kept */
    uint64_t last, births, ticks;
    struct list recent, free; /* `recent` begins with the most recently used */
    struct entry *entry, **order, **bucket;
};

/* The greatest score and the most units. As a double, UINT64_MAX would be 2^64. */
static const uint64_t MOST_SCORE = UINT64_MAX / 2;

static double score_of(const struct entry *e) {
    return e->score > e->min ? e->score : e->min;
}

static uint64_t whole_score(double score) {
    return score < (double)MOST_SCORE ? (uint64_t)score : MOST_SCORE;
}

/* ---- finding */

static struct entry **bucket_of(const struct usage *u, const void *key) {
    uint64_t hash = (uint64_t)(uintptr_t)key * UINT64_C(0x9e3779b97f4a7c15);
    return &u->bucket[(hash >> 32) & (u->n_buckets - 1)];
}

static struct entry *find_score(const struct usage *u, const void *key) {
    struct entry *e = *bucket_of(u, key);
    while (e && e->key != key) e = e->next;
    return e;
}

static void drop_score(struct usage *u, struct entry *e) {
    struct entry **at = bucket_of(u, e->key);
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    u->n_recent -= !e->scored;
    u->n_promoted -= e->promoted;
    list_remove(&e->of_recent);
    memset(e, 0, sizeof *e);
    list_append(&u->free, &e->of_recent);
}

/* Drops the lightest of the few oldest links: the oldest one may carry much. */
static void make_room(struct usage *u) {
    struct entry *lightest = NULL;
    struct list *n = u->recent.prev;
    for (unsigned i = 0; i < OLDEST; i++, n = n->prev) {
        struct entry *e = list_of(n, struct entry, of_recent);
        if (!lightest || e->gathered < lightest->gathered) lightest = e;
    }
    drop_score(u, lightest);
}

/* Links that were adopted and released since the last tick may fill the table. */
static void make_room_in_table(struct usage *u) {
    struct entry *weakest = NULL;
    for (uint32_t i = 0; i < u->n_entries; i++) {
        struct entry *e = &u->entry[i];
        if (e->scored && !e->promoted && (!weakest || score_of(e) < score_of(weakest))) weakest = e;
    }
    drop_score(u, weakest); /* it exists: the table has twice the capacity */
}

static struct entry *note_score(struct usage *u, void *key) {
    struct entry *e = find_score(u, key);
    if (e) return e;
    if (u->n_recent == u->p.recent)
        make_room(u);
    else if (list_empty(&u->free))
        make_room_in_table(u);
    e = list_of(list_pop(&u->free), struct entry, of_recent);
    struct entry **bucket = bucket_of(u, key);
    e->key = key;
    e->next = *bucket;
    e->born = u->births++;
    *bucket = e;
    u->n_recent++;
    list_prepend(&u->recent, &e->of_recent);
    return e;
}

/* ---- a tick: scores */

static double kept_after(const struct usage *u, uint64_t elapsed) {
    double kept = 1;
    for (uint64_t ticks = elapsed / u->p.tick; ticks > 0 && kept > 1e-12; ticks--)
        kept *= u->p.decay / 100.0;
    return kept;
}

/* Moves a link to the table of scores. */
static void keep_score(struct usage *u, struct entry *e) {
    u->n_recent -= !e->scored;
    e->scored = true;
    list_remove(&e->of_recent);
}

/* The view of the peer decays unless the link is promoted. */
static void score(struct usage *u, struct entry *e, double kept, double seconds) {
    e->score = kept * e->score + (1 - kept) * ((double)e->gathered / seconds);
    if (!e->promoted) e->min *= kept;
    e->gathered = 0;
    keep_score(u, e);
    e->demoted = e->early = false;
    e->tick = u->ticks;
    e->rank = score_of(e) * (e->promoted ? u->p.factor / 100.0 : 1);
}

static uint32_t score_all(struct usage *u, uint64_t elapsed) {
    double kept = kept_after(u, elapsed);
    uint32_t n = 0;
    for (uint32_t i = 0; i < u->n_entries; i++) {
        if (!u->entry[i].key) continue;
        score(u, &u->entry[i], kept, (double)elapsed / 1e9);
        u->order[n++] = &u->entry[i];
    }
    return n;
}

/* ---- … their order: a heap sort, which needs no memory */

static bool before_score(const struct entry *a, const struct entry *b) {
    if (a->rank != b->rank) return a->rank > b->rank;
    return a->promoted != b->promoted ? a->promoted : a->born < b->born;
}

/* The last in `order` is on top. */
static void sift(struct entry **order, uint32_t at, uint32_t n) {
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && before_score(order[child], order[child + 1])) child++;
        if (!before_score(order[at], order[child])) return;
        struct entry *e = order[at];
        order[at] = order[child];
        order[child] = e;
    }
}

static void sort(struct entry **order, uint32_t n) {
    for (uint32_t at = n / 2; at-- > 0;) sift(order, at, n);
    while (n-- > 1) {
        struct entry *e = order[0];
        order[0] = order[n];
        order[n] = e;
        sift(order, 0, n);
    }
}

/* ---- decisions. A hook may forget an entry whose memory is reused: check that this tick scored
 * it. */

static bool eligible_score(const struct usage *u, const struct entry *e) {
    if (score_of(e) < (double)u->p.floor) return false;
    return !u->hooks.eligible || u->hooks.eligible(e->key, u->hooks.arg);
}

static bool stays(const struct usage *u, const struct entry *e) {
    return score_of(e) >= (double)u->p.floor * 100 / u->p.factor;
}

static void demote_score(struct usage *u, struct entry *e) {
    e->promoted = false;
    e->demoted = true;
    u->n_promoted--;
    if (u->hooks.demote) u->hooks.demote(e->key, whole_score(score_of(e)), u->hooks.arg);
}

/* The first eligible links in order get the slots. Other promoted links are demoted. */
static void demote_losers(struct usage *u, uint32_t n) {
    uint32_t places = u->p.capacity;
    for (uint32_t i = 0; i < n; i++) {
        struct entry *e = u->order[i];
        if (e->tick != u->ticks) continue;
        bool place = places > 0 && (e->promoted ? stays(u, e) : eligible_score(u, e));
        places -= place;
        if (e->promoted && !place) demote_score(u, e);
    }
}

static void promote_score(struct usage *u, struct entry *e) {
    const void *key = e->key;
    uint64_t born = e->born;
    bool taken = u->hooks.promote(e->key, whole_score(score_of(e)), u->hooks.arg);
    if (!taken || e->key != key || e->born != born || e->promoted) return;
    e->promoted = true;
    u->n_promoted++;
}

static void promote_winners(struct usage *u, uint32_t n) {
    for (uint32_t i = 0; i < n && u->n_promoted < u->p.capacity; i++) {
        struct entry *e = u->order[i];
        if (e->tick == u->ticks && !e->promoted && !e->demoted && eligible_score(u, e))
            promote_score(u, e);
    }
}

/* Keeps the best links and all promoted links. Links with score 0 are dropped. */
static void drop_rest(struct usage *u, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        struct entry *e = u->order[i];
        if (e->tick == u->ticks && !e->promoted && (i >= u->table || score_of(e) < 1))
            drop_score(u, e);
    }
}

static bool may_change(const struct usage *u, uint32_t n) {
    if (u->n_promoted > 0) return true;
    for (uint32_t i = 0; i < n; i++)
        if (u->order[i]->tick == u->ticks && score_of(u->order[i]) >= (double)u->p.floor)
            return true;
    return false;
}

bool weft__usage_tick(struct usage *u, uint64_t now) {
    if (now < weft__usage_due(u)) return true;
    u->ticks++;
    uint32_t n = score_all(u, now - u->last);
    u->last = now;
    sort(u->order, n);
    demote_losers(u, n);
    if (u->hooks.promote) promote_winners(u, n);
    drop_rest(u, n);
    return may_change(u, n);
}

uint64_t weft__usage_due(const struct usage *u) {
    return u->last + u->p.tick;
}

/* ---- between two ticks */

/* The least score that the next tick will compute. */
static double foreseen(const struct usage *u, const struct entry *e) {
    return (100 - u->p.decay) / 100.0 * (double)e->gathered * 1e9 / (double)u->p.tick;
}

/* Units that were scored early do not count again in the next tick. */
static void score_early(struct usage *u, struct entry *e) {
    e->score += foreseen(u, e);
    e->gathered = 0;
    keep_score(u, e);
}

void weft__usage_early(struct usage *u) {
    if (!u->hooks.promote) return;
    for (uint32_t i = 0; i < u->n_entries && u->n_promoted < u->p.capacity; i++) {
        struct entry *e = &u->entry[i];
        if (!e->key || !e->early || e->promoted || e->demoted) continue;
        score_early(u, e);
        if (eligible_score(u, e)) promote_score(u, e);
    }
}

static enum usage_need need(const struct usage *u, struct entry *e) {
    if ((double)e->gathered * 1e9 < (double)u->p.floor * (double)u->p.tick) return USAGE_NOTHING;
    if (e->promoted || e->early || u->n_promoted >= u->p.capacity) return USAGE_TICK;
    e->early = foreseen(u, e) >= (double)u->p.floor;
    return e->early ? USAGE_EARLY : USAGE_TICK;
}

/* ---- reports */

static uint64_t add_units(const struct usage *u, uint64_t units, uint64_t messages,
                          uint64_t bytes) {
    uint64_t weight;
    if (__builtin_mul_overflow(messages, u->p.message, &weight) ||
        __builtin_add_overflow(units, weight, &units) ||
        __builtin_add_overflow(units, bytes, &units) || units > MOST_SCORE)
        return MOST_SCORE;
    return units;
}

enum usage_need weft__usage_touch(struct usage *u, void *key, uint64_t messages, uint64_t bytes) {
    struct entry *e = note_score(u, key);
    e->gathered = add_units(u, e->gathered, messages, bytes);
    if (!e->scored) {
        list_remove(&e->of_recent);
        list_prepend(&u->recent, &e->of_recent);
    }
    return need(u, e);
}

void weft__usage_min_score(struct usage *u, void *key, uint64_t score) {
    if (score > MOST_SCORE) score = MOST_SCORE;
    if (score || find_score(u, key)) note_score(u, key)->min = (double)score;
}

void weft__usage_release(struct usage *u, void *key) {
    struct entry *e = find_score(u, key);
    if (!e || !e->promoted) return;
    e->promoted = false;
    u->n_promoted--;
}

bool weft__usage_adopt(struct usage *u, void *key) {
    if (weft__usage_promoted(u, key)) return true;
    if (u->n_promoted >= u->p.capacity) return false;
    struct entry *e = note_score(u, key);
    keep_score(u, e);
    e->promoted = true;
    u->n_promoted++;
    return true;
}

void weft__usage_forget(struct usage *u, void *key) {
    struct entry *e = find_score(u, key);
    if (e) drop_score(u, e);
}

/* ---- queries */

uint64_t weft__usage_score(const struct usage *u, const void *key) {
    const struct entry *e = find_score(u, key);
    return e ? whole_score(score_of(e)) : 0;
}

uint64_t weft__usage_seen(const struct usage *u, const void *key) {
    const struct entry *e = find_score(u, key);
    return e ? whole_score(e->score) : 0;
}

bool weft__usage_noted(const struct usage *u, const void *key) {
    return find_score(u, key) != NULL;
}

bool weft__usage_promoted(const struct usage *u, const void *key) {
    const struct entry *e = find_score(u, key);
    return e && e->promoted;
}

bool weft__usage_outscores(const struct usage *u, uint64_t challenger, uint64_t incumbent) {
    return (double)challenger * 100 > (double)incumbent * u->p.factor;
}

void *weft__usage_next(const struct usage *u, uint32_t *at) {
    while (*at < u->n_entries) {
        void *key = u->entry[(*at)++].key;
        if (key) return key;
    }
    return NULL;
}

uint32_t weft__usage_n_promoted(const struct usage *u) {
    return u->n_promoted;
}

uint32_t weft__usage_places(const struct usage *u) {
    return u->p.capacity;
}

/* ---- construction */

static void settle_params(struct usage_params *p) {
    if (!p->tick) p->tick = 100 * NS_PER_MS;
    if (p->tick < NS_PER_MS) p->tick = NS_PER_MS;
    if (!p->decay) p->decay = 80;
    if (p->decay > 99) p->decay = 99;
    if (!p->factor) p->factor = 200;
    if (p->factor < 101) p->factor = 101;
    if (!p->recent) p->recent = 64;
    if (p->recent < RECENT_MIN) p->recent = RECENT_MIN;
    if (p->recent > CAPACITY_MAX) p->recent = CAPACITY_MAX;
    if (p->capacity > CAPACITY_MAX) p->capacity = CAPACITY_MAX;
    if (!p->message) p->message = 4096;
    if (!p->floor) p->floor = 4 << 20;
}

static uint32_t power_of_two(uint32_t at_least) {
    uint32_t n = 1;
    while (n < at_least) n *= 2;
    return n;
}

/* Sizes by the parameters. The recent list and the table of scores may be full at once. */
static void count_score(struct usage *u) {
    u->table = 2 * u->p.capacity > TABLE_MIN ? 2 * u->p.capacity : TABLE_MIN;
    u->n_entries = u->p.recent + u->table;
    u->n_buckets = power_of_two(u->n_entries);
}

size_t weft__usage_size(const struct usage *u) {
    return sizeof *u + u->n_entries * (sizeof *u->entry + sizeof(struct entry *)) +
           u->n_buckets * sizeof(struct entry *);
}

struct usage *weft__usage_new(const void *parent, const struct usage_params *params,
                              const struct usage_hooks *hooks, uint64_t now) {
    struct usage like = {
        .p = *params, .hooks = hooks ? *hooks : (struct usage_hooks){0}, .last = now};
    settle_params(&like.p);
    count_score(&like);
    struct usage *u = weft__alloc(parent, weft__usage_size(&like), "usage");
    if (!u) return NULL;
    *u = like;
    u->entry = (struct entry *)(u + 1);
    u->order = (struct entry **)(u->entry + u->n_entries);
    u->bucket = u->order + u->n_entries;
    list_init(&u->recent);
    list_init(&u->free);
    for (uint32_t i = 0; i < u->n_entries; i++) list_append(&u->free, &u->entry[i].of_recent);
    return u;
}
