/* The network: who is on it, what passes, and the draws that decide. */
#include "local.h"
#include <string.h>

const struct sim_profile weft__sim_reliable = {
    .reliable = true, .mtu = SIM_BCOPY, .depth = 128, .latency_ns = 2000, .spin_ns = NS_PER_S};
const struct sim_profile weft__sim_datagram = {.mtu = 1024, .depth = 256, .latency_ns = 2000};

static _Thread_local struct sim_fabric *in_use[2]; /* of "sim", and of "simfast" */

struct sim_fabric *weft__sim_in_use(bool fast) {
    return in_use[fast];
}

void weft__sim_use(struct sim_fabric *fabric) {
    in_use[false] = fabric;
}

void weft__sim_use_fast(struct sim_fabric *fabric) {
    in_use[true] = fabric;
}

static int forget_fabric(struct sim_fabric *f) {
    for (int fast = 0; fast < 2; fast++)
        if (in_use[fast] == f) in_use[fast] = NULL;
    return 0;
}

struct sim_fabric *weft__sim_create(struct reactor_clock *clock, uint64_t seed,
                                    const struct sim_profile *profile) {
    struct sim_fabric *f = weft__new(clock, struct sim_fabric);
    if (!f) return NULL;
    f->scratch = weft__alloc(f, SIM_HEADER + SIM_ZCOPY, "sim scratch");
    if (!f->scratch) {
        talloc_free(f);
        return NULL;
    }
    f->clock = clock;
    f->seed = seed;
    f->profile = *profile;
    talloc_set_destructor(f, forget_fabric);
    return f;
}

struct sim_profile *weft__sim_profile(struct sim_fabric *f) {
    return &f->profile;
}

const struct sim_stats *weft__sim_stats(const struct sim_fabric *f) {
    return &f->stats;
}

uint64_t weft__sim_trace_hash(const struct sim_fabric *f) {
    return f->hash;
}

unsigned weft__sim_node(const struct iface *iface) {
    return ((const struct sim_iface *)iface)->node;
}

struct sim_lane *weft__sim_lane(const struct sim_fabric *f, uint32_t id) {
    struct sim_lane *lane = f->bucket[id % SIM_BUCKETS];
    while (lane && lane->id != id) lane = lane->next_of_bucket;
    return lane;
}

/* ---- draws ----------------------------------------------------------------------------------- */

/* The finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014). */
static uint64_t mix_fabric(uint64_t z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t weft__sim_draw(const struct sim_fabric *f, enum sim_site site, uint64_t actor,
                        uint64_t n) {
    return mix_fabric(mix_fabric(mix_fabric(mix_fabric(f->seed) ^ (uint64_t)site) ^ actor) ^ n);
}

bool weft__sim_chance(const struct sim_fabric *f, enum sim_site site, uint64_t actor, uint64_t n,
                      uint32_t rate) {
    return weft__sim_draw(f, site, actor, n) % 1000000 < rate;
}

static void note_fabric(struct sim_fabric *f, uint64_t value) {
    f->hash = mix_fabric(f->hash ^ value);
}

/* Of bytes: four sums at once, since each step of one waits for the step before. */
static uint64_t digest(const uint8_t *bytes, uint32_t len) {
    enum { SUMS = 4 };
    uint64_t sum[SUMS] = {1, 2, 3, 4}, word[SUMS] = {0};
    for (; len; bytes += sizeof word) {
        uint32_t n = len < sizeof word ? len : (uint32_t)sizeof word;
        if (n < sizeof word) memset(word, 0, sizeof word);
        memcpy(word, bytes, n);
        for (int i = 0; i < SUMS; i++) {
            sum[i] = (sum[i] ^ word[i]) * 0x9fb21c651e98df25u;
            sum[i] ^= sum[i] >> 29;
        }
        len -= n;
    }
    for (int i = 1; i < SUMS; i++) sum[0] = mix_fabric(sum[0] ^ sum[i]);
    return sum[0];
}

void weft__sim_note(struct sim_fabric *f, const char *what, const struct sim_packet *p) {
    note_fabric(f, weft__clock_now(f->clock));
    note_fabric(f, (uint64_t)(uint8_t)*what << 56 | (uint64_t)p->kind << 48 |
                       (uint64_t)p->id << 40 | p->len);
    note_fabric(f, (uint64_t)p->from << 48 | (uint64_t)p->to << 32 | p->src);
    note_fabric(f, digest(p->data, p->len));
}

/* ---- partitions ------------------------------------------------------------------------------ */

bool weft__sim_passes(const struct sim_fabric *f, unsigned from, unsigned to) {
    return !f->dead[from] && !f->dead[to] && !(f->cut[from][to / 64] >> to % 64 & 1);
}

void weft__sim_cut(struct sim_fabric *f, unsigned from, unsigned to) {
    f->cut[from][to / 64] |= UINT64_C(1) << to % 64;
}

void weft__sim_heal(struct sim_fabric *f, unsigned from, unsigned to) {
    f->cut[from][to / 64] &= ~(UINT64_C(1) << to % 64);
}

void weft__sim_partition(struct sim_fabric *f, unsigned a, unsigned b) {
    weft__sim_cut(f, a, b);
    weft__sim_cut(f, b, a);
}

void weft__sim_heal_all(struct sim_fabric *f) {
    memset(f->cut, 0, sizeof f->cut);
}

/* ---- stalls ---------------------------------------------------------------------------------- */

void weft__sim_stall(struct sim_fabric *f, unsigned from, unsigned to, uint64_t ns) {
    f->stall[f->n_stalls++ % SIM_STALLS] =
        (struct sim_stall){from, to, weft__clock_now(f->clock) + ns};
}

uint64_t weft__sim_stalled_until(const struct sim_fabric *f, unsigned from, unsigned to) {
    uint64_t until = 0;
    for (const struct sim_stall *s = f->stall; s < f->stall + SIM_STALLS; s++)
        if (s->until > until && s->from == from && s->to == to) until = s->until;
    return until;
}
