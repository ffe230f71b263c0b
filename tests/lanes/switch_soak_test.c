/*
 * Two processes whose link goes to and fro between tcp and shared memory while both send all kinds
 * of traffic: whatever comes is compared with what it must be, generated again by its receiver.
 * Nothing is lost, nothing comes twice, the order is kept.
 *
 * 1,000 switches of both directions; more, and figures, with WEFT_TEST_SWITCHES=100000.
 */
#include <endpoints/core/worker.h>
#include <endpoints/lanes/switch_local.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <tests/harness.h>
#include <tests/network.h>
#include <tests/support/clock.h>
#include <weft/weft.h>

enum kind { AM, TAG, STREAM, BLOCK, ADD, KINDS };
enum { MESSAGE = 1, EXPECT, DIAL, BACK, ANSWER }; /* ids of active messages */
enum { LARGEST = 90000, WINDOW = 16, BLOCK_LEN = 4096, BLOCKS = 4, PIECE = 6000, PAUSES = 8 };

/* ---- what the n-th of a kind is: its length, and its bytes */

static uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}
static uint64_t key_of(unsigned side, enum kind kind, uint64_t n) {
    return mixed((uint64_t)side << 60 | (uint64_t)kind << 56 | n) | 1;
}
static size_t length_of(uint64_t key) {
    static const size_t most[] = {8,    8,    64,   64,   64,   300,  300,   2000,
                                  2000, 9000, 9000, 9000, 9000, 9000, 40000, LARGEST};
    return (key >> 8) % (most[key >> 60] + 1);
}
static void generate(void *to, size_t len, uint64_t key) {
    uint8_t *at = to;
    uint64_t word = key;
    for (size_t i = 0; i < len; i += 8, word = word * UINT64_C(0x5851f42d4c957f2d) + key)
        memcpy(at + i, &word, len - i < 8 ? len - i : 8);
}

/* ---- one side */

struct shared {
    _Atomic bool listening, keys_there[2], stop, idle[2];
    char uri[128];
    struct {
        char key[WEFT_RKEY_MAX], shm[96];
        size_t key_len, shm_len;
        uint64_t base;
    } side[2];
    struct tally {
        _Atomic uint64_t sent[KINDS], seen[KINDS], hash[KINDS], wrong, lost;
        uint64_t pause_max, pauses[PAUSES], bytes, native;
    } tally[2];
};
static struct shared *shared;

struct slot {
    uint64_t n, old;
    bool busy;
    uint8_t bytes[LARGEST];
};
static struct {
    unsigned me;
    weft_worker_t *worker;
    weft_ep_t *ep;
    weft_rkey_t *rkey;
    uint8_t *memory;
    struct tally *mine;
    struct slot slot[KINDS][WINDOW], in[KINDS][WINDOW];
    uint64_t asked_tags, taken, piece; /* bytes of the stream, and of what piece */
    uint32_t answered;
    weft_status_t answer;
} my;
static uint8_t expected[LARGEST];

static void count_wrong(int line) {
    if (my.mine->wrong++ < 5) printf("  wrong: line %d, side %u\n", line, my.me);
}

/* The same for all that is right, and for nothing else. */
static void came(enum kind kind, uint64_t n, const void *bytes, size_t len) {
    uint64_t key = key_of(!my.me, kind, n);
    size_t due = length_of(key);
    generate(expected, due, key);
    if (len != due || (len && memcmp(bytes, expected, len) != 0)) count_wrong(__LINE__);
    my.mine->hash[kind] += mixed(key ^ n);
    my.mine->seen[kind]++;
    my.mine->bytes += len;
}

static struct slot *free_slot(struct slot *slots) {
    for (unsigned i = 0; i < WINDOW; i++)
        if (!slots[i].busy) return &slots[i];
    return NULL;
}
static void left(weft_status_t status, void *arg) {
    my.mine->lost += status < 0;
    ((struct slot *)arg)->busy = false;
}
/* The next of its kind, generated into a place of its own. */
static struct slot *next_of(enum kind kind) {
    struct slot *s = free_slot(my.slot[kind]);
    if (!s) return NULL;
    s->n = my.mine->sent[kind];
    s->busy = true;
    uint64_t key = key_of(my.me, kind, s->n);
    generate(s->bytes, length_of(key), key);
    return s;
}
static weft_iov_t piece_of(enum kind kind, struct slot *s) {
    return (weft_iov_t){s->bytes, length_of(key_of(my.me, kind, s->n))};
}
static void posted(enum kind kind, struct slot *s, weft_status_t st) {
    my.mine->sent[kind]++;
    if (st != WEFT_IN_PROGRESS) left(st, s);
}

/* ---- active messages: handlers run in order; what is fetched comes when it comes */

static void am_fetched(weft_status_t status, void *arg) {
    struct slot *s = arg;
    if (status == WEFT_OK)
        came(AM, s->n, s->bytes, length_of(key_of(!my.me, AM, s->n)));
    else
        my.mine->lost++;
    free(s);
}
static void on_message(weft_ep_t *ep, weft_am_t *am, void *arg) {
    static uint64_t next;
    uint64_t n = UINT64_MAX;
    if (am->header_len == sizeof n) memcpy(&n, am->header, sizeof n);
    if (n != next++) count_wrong(__LINE__);
    if (am->data || am->len == 0) {
        came(AM, n, am->data, am->len);
        return;
    }
    struct slot *s = malloc(sizeof *s);
    s->n = n;
    weft_op_t op = {.done = am_fetched, .arg = s};
    weft_status_t st = weft_am_recv(am, &(weft_iov_t){s->bytes, am->len}, 1, &op);
    if (st != WEFT_IN_PROGRESS) am_fetched(st, s);
}
static void send_message(void) {
    struct slot *s = next_of(AM);
    if (!s) return;
    weft_iov_t iov = piece_of(AM, s);
    posted(AM, s,
           weft_am_send(my.ep, MESSAGE, &s->n, sizeof s->n, &iov, 1,
                        &(weft_op_t){.done = left, .arg = s}));
}

/* ---- tagged ones: receives match in the order in which they were posted */

static void tag_came(weft_status_t status, void *arg) {
    struct slot *s = arg;
    if (status == WEFT_OK) came(TAG, s->n, s->bytes, length_of(key_of(!my.me, TAG, s->n)));
    s->busy = false;
}
static void ask_tags(void) {
    for (struct slot *s; (s = free_slot(my.in[TAG]));) {
        s->busy = true;
        s->n = my.asked_tags++;
        weft_iov_t iov = {s->bytes, sizeof s->bytes};
        weft_status_t st = weft_tag_recv(my.worker, !my.me, UINT64_MAX, &iov, 1, NULL,
                                         &(weft_op_t){.done = tag_came, .arg = s});
        if (st != WEFT_IN_PROGRESS) tag_came(st, s);
    }
}
static void send_tag(void) {
    struct slot *s = next_of(TAG);
    if (!s) return;
    weft_iov_t iov = piece_of(TAG, s);
    posted(TAG, s, weft_tag_send(my.ep, my.me, &iov, 1, &(weft_op_t){.done = left, .arg = s}));
}

/* ---- the stream: pieces, of which the receiver sees bytes */

static void send_stream(void) {
    struct slot *s = next_of(STREAM);
    if (!s) return;
    weft_iov_t iov = piece_of(STREAM, s);
    weft_status_t st = WEFT_OK;
    if (iov.len) st = weft_stream_send(my.ep, &iov, 1, &(weft_op_t){.done = left, .arg = s});
    posted(STREAM, s, st);
}
static void take_stream(void) {
    const void *data;
    size_t len;
    struct slot *s = &my.in[STREAM][0];
    while (weft_stream_take(my.ep, &data, &len) == WEFT_OK && len) {
        for (size_t at = 0; at < len;) {
            size_t due = length_of(key_of(!my.me, STREAM, my.piece)) - my.taken;
            size_t take = len - at < due ? len - at : due;
            memcpy(s->bytes + my.taken, (const uint8_t *)data + at, take);
            my.taken += take;
            at += take;
            if (take == due) {
                came(STREAM, my.piece++, s->bytes, my.taken);
                my.taken = 0;
            }
        }
        weft_stream_release(my.worker, data);
    }
    /* Empty pieces are no bytes. */
    while (my.taken == 0 && my.piece < shared->tally[!my.me].sent[STREAM] &&
           length_of(key_of(!my.me, STREAM, my.piece)) == 0)
        came(STREAM, my.piece++, NULL, 0);
}

/* ---- one-sided: a block is put, and behind a fence read back; a word counts */

static uint64_t remote(uint64_t offset) {
    return shared->side[!my.me].base + offset;
}
static void block_read(weft_status_t status, void *arg) {
    struct slot *s = arg, *back = &my.in[BLOCK][s - my.slot[BLOCK]];
    if (status < 0) my.mine->lost++;
    generate(expected, BLOCK_LEN, key_of(my.me, BLOCK, s->n));
    if (memcmp(back->bytes, expected, BLOCK_LEN) != 0) count_wrong(__LINE__);
    my.mine->seen[BLOCK]++;
    s->busy = back->busy = false;
}
static void put_left(weft_status_t status, void *arg) {
    my.mine->lost += status < 0;
}
static void put_and_get(void) {
    struct slot *s = free_slot(my.slot[BLOCK]);
    if (!s || s - my.slot[BLOCK] >= BLOCKS) return;
    unsigned i = (unsigned)(s - my.slot[BLOCK]);
    s->busy = true;
    s->n = my.mine->sent[BLOCK]++;
    generate(s->bytes, BLOCK_LEN, key_of(my.me, BLOCK, s->n));
    (void)weft_put(my.ep, s->bytes, BLOCK_LEN, remote(4096 + i * BLOCK_LEN), my.rkey,
                   &(weft_op_t){.done = put_left});
    (void)weft_ep_fence(my.ep);
    weft_status_t st =
        weft_get(my.ep, my.in[BLOCK][i].bytes, BLOCK_LEN, remote(4096 + i * BLOCK_LEN), my.rkey,
                 &(weft_op_t){.done = block_read, .arg = s});
    if (st != WEFT_IN_PROGRESS) block_read(st, s);
}
static void added(weft_status_t status, void *arg) {
    struct slot *s = arg;
    if (status < 0 || s->old != s->n) count_wrong(__LINE__);
    my.mine->seen[ADD]++;
    s->busy = false;
}
static void fetch_and_add(void) {
    struct slot *s = &my.slot[ADD][0];
    if (s->busy) return;
    s->busy = true;
    s->n = my.mine->sent[ADD]++;
    weft_status_t st = weft_atomic_fetch(my.ep, WEFT_ATOMIC_ADD, 8, 1, 0, &s->old, remote(0),
                                         my.rkey, &(weft_op_t){.done = added, .arg = s});
    if (st != WEFT_IN_PROGRESS) added(st, s);
}

static void turn(void) {
    if (!shared->stop) {
        send_message();
        send_tag();
        send_stream();
        put_and_get();
        fetch_and_add();
    }
    ask_tags();
    take_stream();
    if (weft_worker_progress(my.worker, 0) == 0) sched_yield();
}

/* All that was posted here is done, and all that the other side sent is here. */
static bool is_idle(void) {
    const struct tally *other = &shared->tally[!my.me];
    for (unsigned kind = AM; kind < KINDS; kind++)
        for (unsigned i = 0; i < WINDOW; i++)
            if (my.slot[kind][i].busy) return false;
    for (unsigned kind = AM; kind <= STREAM; kind++)
        if (my.mine->seen[kind] < other->sent[kind]) return false;
    return true;
}

/* ---- switching: side 0 says what is to be done */

static struct iface *own_shm(void) {
    return weft__worker_iface(my.worker, "shm", 3);
}
static weft_status_t dial(uint32_t number) {
    return weft__switch_dial(my.ep->link, own_shm(), shared->side[!my.me].shm,
                             shared->side[!my.me].shm_len, true, number);
}
static void on_word(weft_ep_t *ep, weft_am_t *am, void *arg) {
    uint32_t id = (uint32_t)(uintptr_t)arg, number;
    memcpy(&number, am->header, sizeof number);
    weft_status_t st = id == EXPECT ? weft__switch_expect(ep->link, own_shm(), number)
                       : id == DIAL ? dial(number)
                                    : weft__switch_back(ep->link);
    (void)weft_am_send(ep, ANSWER, &st, sizeof st, NULL, 0, NULL);
}
static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    memcpy(&my.answer, am->header, sizeof my.answer);
    my.answered++;
}

#define PATIENTLY(cond)                                                         \
    do {                                                                        \
        double end_ = test_now() + test_timeout(60);                            \
        while (!(cond) && !my.mine->lost && test_now() < end_) turn();          \
        if (!(cond)) printf("  side %u waits for %s\n", my.me, #cond), exit(1); \
    } while (0)

static weft_status_t notify(uint8_t id, uint32_t number) {
    uint32_t before = my.answered;
    if (weft_am_send(my.ep, id, &number, sizeof number, NULL, 0, NULL) < 0) exit(1);
    PATIENTLY(my.answered > before);
    return my.answer;
}
static unsigned state(void) {
    const struct switching *s = my.ep->link ? my.ep->link->more->switching : NULL;
    return s ? s->core.fsm.state : SWITCH_ALONE;
}

/* The peer may still wait for our word that an earlier switch is over. */
static void there(uint32_t n) {
    weft_status_t st;
    if (n % 2) {
        while ((st = notify(EXPECT, n)) == WEFT_ERR_BUSY) continue;
        if (st == WEFT_OK) st = dial(n);
    } else {
        st = weft__switch_expect(my.ep->link, own_shm(), n);
        while (st == WEFT_OK && (st = notify(DIAL, n)) == WEFT_ERR_BUSY) st = WEFT_OK;
    }
    if (st < 0) printf("  switch %u: %s\n", n, weft_status_name(st)), exit(1);
    PATIENTLY(state() == SWITCH_BESIDE &&
              my.ep->link->more->switching->core.out != my.ep->link->more->switching->core.base);
}
static void back(uint32_t n) {
    weft_status_t st = n % 3 ? weft__switch_back(my.ep->link) : notify(BACK, n);
    while (st == WEFT_ERR_BUSY) st = notify(BACK, n);
    PATIENTLY(state() == SWITCH_ALONE);
}

/* ---- two processes */

static void on_endpoint(weft_ep_t *ep, void *arg) {
    my.ep = ep;
}
static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    if (!shared->stop) printf("  side %u: %s\n", my.me, weft_status_name(status));
    my.mine->lost++;
}
#define MUST(call) \
    if ((call) < 0) printf("  side %u: %s\n", my.me, #call), exit(1)

static void set_up(unsigned me) {
    static const weft_setting_t settings[] = {{"lanes.switch", "on"},
                                              {"lanes.min_rate", "1000g"},
                                              {"rendezvous.threshold", "64k"},
                                              {"calibration", "off"}};
    weft_context_t *context;
    weft_listener_t *listener;
    weft_mem_t *mem;
    weft_mem_info_t info;
    weft_listen_params_t listen = {.on_endpoint = on_endpoint, .on_error = on_error};
    my.me = me;
    my.mine = &shared->tally[me];
    MUST(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 4},
                             &context));
    MUST(weft_worker_create(context, &(weft_worker_params_t){.transports = "tcp,shm"}, &my.worker));
    MUST(weft_am_handler_set(my.worker, MESSAGE, on_message, NULL));
    MUST(weft_am_handler_set(my.worker, ANSWER, on_answer, NULL));
    for (uintptr_t id = EXPECT; id <= BACK; id++)
        MUST(weft_am_handler_set(my.worker, (uint8_t)id, on_word, (void *)id));
    MUST(weft_mem_alloc(my.worker, 65536, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &mem));
    MUST(weft_mem_describe(mem, &info));
    my.memory = info.base;
    memset(my.memory, 0, 65536);
    shared->side[me].base = (uint64_t)(uintptr_t)info.base;
    shared->side[me].key_len = sizeof shared->side[me].key;
    MUST(weft_mem_pack(mem, shared->side[me].key, &shared->side[me].key_len));
    struct iface *shm = weft__worker_iface(my.worker, "shm", 3);
    shared->side[me].shm_len = sizeof shared->side[me].shm;
    MUST(shm->ops->address(shm, shared->side[me].shm, &shared->side[me].shm_len));
    shared->keys_there[me] = true;
    if (me == 0) {
        while (!shared->listening) sched_yield();
        MUST(weft_connect(my.worker, shared->uri, &(weft_ep_params_t){.on_error = on_error},
                          &my.ep));
    } else {
        MUST(weft_listen(my.worker, "tcp://127.0.0.1:0", &listen, &listener));
        snprintf(shared->uri, sizeof shared->uri, "%s", weft_listener_uri(listener));
        shared->listening = true;
    }
    while (!my.ep || !shared->keys_there[!me]) weft_worker_progress(my.worker, 0);
    MUST(weft_rkey_unpack(my.ep, shared->side[!me].key, shared->side[!me].key_len, &my.rkey));
}

static void wind_up(void) {
    static const char *const names[PAUSES] = {"1us",   "4us", "16us", "64us",
                                              "256us", "1ms", "4ms",  "more"};
    PATIENTLY(is_idle());
    for (unsigned i = 0; i < PAUSES; i++) {
        char name[40];
        snprintf(name, sizeof name, "link.switch_pause.%s", names[i]);
        my.mine->pauses[i] = weft_worker_count(my.worker, name);
    }
    my.mine->pause_max = weft_worker_count(my.worker, "link.switch_pause_max");
    my.mine->native = weft_worker_count(my.worker, "rma.native");
    shared->idle[my.me] = true;
    PATIENTLY(shared->idle[!my.me]);
}

/* Nothing comes behind the end: all of it is here, as often as it was sent, and no more. */
static void compare(void) {
    static const char *const name[KINDS] = {"active", "tagged", "stream pieces",
                                            "put and read back", "fetched and added"};
    for (unsigned side = 0; side < 2; side++) {
        struct tally *from = &shared->tally[side], *to = &shared->tally[!side];
        for (unsigned kind = AM; kind <= STREAM; kind++) {
            uint64_t hash = 0;
            for (uint64_t n = 0; n < from->sent[kind]; n++)
                hash += mixed(key_of(side, kind, n) ^ n);
            CHECK_EQ(to->seen[kind], from->sent[kind]);
            CHECK(hash == to->hash[kind]);
            printf("  %s %llu, hash %016llx\n", name[kind], (unsigned long long)from->sent[kind],
                   (unsigned long long)hash);
        }
        for (unsigned kind = BLOCK; kind < KINDS; kind++) {
            CHECK_EQ(from->seen[kind], from->sent[kind]);
            printf("  %s %llu\n", name[kind], (unsigned long long)from->sent[kind]);
        }
        CHECK_EQ(from->wrong, 0);
        CHECK_EQ(from->lost, 0);
    }
}

/* The bucket that the share of all pauses ends in. */
static const char *pause_of(double share) {
    static const char *const below[PAUSES] = {"1 us",   "4 us", "16 us", "64 us",
                                              "256 us", "1 ms", "4 ms",  "seconds"};
    uint64_t n = 0, all = 0;
    unsigned i = 0;
    for (i = 0; i < PAUSES; i++) all += shared->tally[0].pauses[i] + shared->tally[1].pauses[i];
    for (i = 0; i < PAUSES - 1; i++) {
        n += shared->tally[0].pauses[i] + shared->tally[1].pauses[i];
        if ((double)n >= share * (double)all) break;
    }
    return below[i];
}

static void soak(uint32_t switches) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    fflush(stdout);
    double begun = test_now();
    pid_t pid[2];
    for (unsigned side = 0; side < 2; side++) {
        if ((pid[side] = fork())) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        set_up(side);
        for (uint32_t n = 0; side == 0 && n < switches; n += 2) there(n / 2 + 1), back(n / 2 + 1);
        if (side == 0) shared->stop = true;
        while (!shared->stop && !my.mine->lost) turn();
        wind_up();
        exit(0);
    }
    int status[2] = {-1, -1};
    for (unsigned side = 0; side < 2; side++)
        CHECK_EQ(waitpid(pid[side], &status[side], 0), pid[side]);
    double seconds = test_now() - begun;
    CHECK_EQ(status[0] | status[1], 0);
    compare();
    const struct tally *t = shared->tally;
    uint64_t longest = t[0].pause_max > t[1].pause_max ? t[0].pause_max : t[1].pause_max;
    printf("  %u switches of both directions in %.1f s: %.0f/s, %.2f GB compared, %llu one-sided "
           "natively; 0 lost, "
           "0 twice, "
           "0 out of order; pause of a sender: half below %s, 99%% below %s, longest %.0f us\n",
           switches, seconds, switches / seconds, (double)(t[0].bytes + t[1].bytes) * 1e-9,
           (unsigned long long)t[0].native + t[1].native, pause_of(0.5), pause_of(0.99),
           (double)longest * 1e-3);
    munmap(shared, sizeof *shared);
}

TEST(nothing_is_lost_in_many_switches_between_processes) {
    const char *set = getenv("WEFT_TEST_SWITCHES");
    soak(set ? (uint32_t)atoi(set) : 1000);
}
