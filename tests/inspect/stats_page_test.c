/* What a worker shows of itself, and what a reader makes of a page that may be anything. */
#include <tests/support/worker_pair.h>

#include <dirent.h>
#include <endpoints/core/worker.h>
#include <endpoints/inspect/stats_page.h>
#include <endpoints/lanes/usage_worker.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- looking, as weft-info does, but at ourselves */

struct seen {
    void *page;
    uint64_t *copy;
    size_t len;
    struct stats_view view;
};

/* The fd of the page of that worker, or -1; `n_p`: how many pages this process has. */
static int find(uint64_t worker, int *n_p) {
    DIR *dir = opendir("/proc/self/fd");
    int found = -1;
    *n_p = 0;
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        char target[64] = "", path[300];
        struct stats_head head;
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        if (readlink(path, target, sizeof target - 1) < 0 || !strstr(target, LIVE_NAME)) continue;
        ++*n_p;
        if (pread(atoi(e->d_name), &head, sizeof head, 0) == sizeof head && head.worker == worker)
            found = atoi(e->d_name);
    }
    closedir(dir);
    return found;
}

static void look(struct seen *s, const weft_worker_t *worker) {
    struct stat st;
    char path[64];
    int n, fd = find(worker->id, &n);
    CHECK(fd >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int own = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(own >= 0 && fstat(own, &st) == 0);
    s->len = (size_t)st.st_size;
    s->page = mmap(NULL, s->len, PROT_READ, MAP_SHARED, own, 0);
    CHECK(s->page != MAP_FAILED);
    /* No other process writes to it, and it never shrinks. */
    CHECK(mmap(NULL, s->len, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0) == MAP_FAILED);
    CHECK(fcntl(own, F_GET_SEALS) & F_SEAL_SHRINK);
    int writer = open(path, O_RDWR | O_CLOEXEC);
    if (writer >= 0) CHECK(write(writer, "x", 1) < 0 && ftruncate(writer, 0) < 0);
    if (writer >= 0) close(writer);
    close(own);
    s->copy = calloc(1, s->len);
    CHECK(weft__stats_copy(s->page, s->len, s->copy));
    CHECK(weft__stats_read(s->copy, s->len, &s->view));
}

static void again(struct seen *s) {
    CHECK(weft__stats_copy(s->page, s->len, s->copy));
    CHECK(weft__stats_read(s->copy, s->len, &s->view));
}

static void look_away(struct seen *s) {
    munmap(s->page, s->len);
    free(s->copy);
}

static uint64_t counter(const struct seen *s, const char *of) {
    const char *name;
    uint64_t value;
    for (uint32_t i = 0; weft__stats_counter(&s->view, i, &name, &value); i++)
        if (!strcmp(name, of)) return value;
    return UINT64_MAX;
}

static int used_rows(const struct seen *s, struct stats_row *last) {
    struct stats_row row;
    int n = 0;
    for (uint32_t i = 0; weft__stats_row(&s->view, i, &row); i++)
        if (row.flags & LIVE_USED) *last = row, n++;
    return n;
}

static uint64_t received;
static void on_any(weft_ep_t *ep, weft_am_t *am, void *arg) {
    received++;
}

/* ---- what is shown */

TEST(a_worker_shows_itself_its_links_and_its_counters) {
    struct two t;
    struct seen s;
    struct stats_row row;
    two_workers(&t, "self,tcp", NULL, 0);
    look(&s, t.a);
    CHECK_EQ(used_rows(&s, &row), 0);
    CHECK_EQ(s.view.head->pid, getpid());
    CHECK(!strcmp(s.view.head->transports, "self,tcp"));
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    again(&s);
    CHECK_EQ(used_rows(&s, &row), 1);
    CHECK_EQ(s.view.head->n_links, 1);
    CHECK(row.peer == t.b->id && row.flags & LIVE_DIALED);
    CHECK(!strcmp(row.transport, "tcp") && !strcmp(row.link, "UP") &&
          strstr(row.where, "127.0.0.1"));
    CHECK_EQ(row.n_endpoints, 1);
    /* Counters are the worker's own: what it counts is there at once, without a word from it. */
    received = 0;
    weft_am_handler_set(t.b, 1, on_any, NULL);
    for (int i = 0; i < 100; i++) CHECK(weft_am_send(t.ep, 1, NULL, 0, NULL, 0, NULL) >= 0);
    again(&s);
    CHECK_EQ(counter(&s, "am.sent"), 100);
    CHECK_EQ(weft_worker_count(t.a, "am.sent"), 100);
    UNTIL(&t, received == 100);
    again(&s);
    CHECK(counter(&s, "tcp.messages_out") >= 100 && counter(&s, "tcp.writes") > 0);
    CHECK_EQ(counter(&s, "worker.turns"), weft_worker_count(t.a, "worker.turns"));
    weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, NULL);
    UNTIL(&t, list_empty(&t.a->links));
    again(&s);
    CHECK_EQ(used_rows(&s, &row), 0);
    CHECK_EQ(s.view.head->n_links, 0);
    look_away(&s);
    two_down(&t);
}

TEST(the_page_goes_with_the_worker) {
    struct two t;
    int n;
    two_up(&t, "shm");
    CHECK(find(t.a->id, &n) >= 0);
    CHECK_EQ(n, 2);
    two_down(&t);
    find(0, &n);
    CHECK_EQ(n, 0);
}

TEST(a_setting_turns_it_off) {
    const weft_setting_t off = {"worker.stats_page", "off"};
    struct two t;
    int n;
    two_workers(&t, "shm", &off, 1);
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    find(0, &n);
    CHECK_EQ(n, 0);
    CHECK(t.a->live == NULL && weft_worker_count(t.a, "worker.turns") > 0);
    two_down(&t);
}

/* More links than rows: those that were there first, and promoted ones instead of others. */
TEST(promoted_links_have_a_row_before_others) {
    enum { ALL = LIVE_LINKS + 10 };
    const weft_setting_t settings[] = {{"lanes.switch", "on"},
                                       {"peer.max_links", "1000"},
                                       {"lanes.tick", "5ms"},
                                       {"lanes.capacity", "4"}};
    struct two t;
    struct seen s;
    struct stats_row row;
    weft_ep_t *ep[ALL];
    weft_listener_t *listener;
    two_workers(&t, "tcp", settings, 4);
    weft_am_handler_set(t.b, 1, on_any, NULL);
    for (int i = 0; i < ALL; i++) { /* by URIs that differ, so that each has a link of its own */
        t.ready = 0;
        CHECK_EQ(weft_listen(t.b, "tcp://127.0.0.1:0",
                             &(weft_listen_params_t){.on_endpoint = two_on_endpoint, .arg = &t},
                             &listener),
                 0);
        weft_ep_params_t params = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = &t};
        CHECK_EQ(weft_connect(t.a, weft_listener_uri(listener), &params, &ep[i]), 0);
        UNTIL(&t, t.ready);
    }
    look(&s, t.a);
    CHECK_EQ(used_rows(&s, &row), LIVE_LINKS);
    CHECK_EQ(s.view.head->n_links, ALL);
    CHECK_EQ(ep[ALL - 1]->link->stats_row, 0);
    CHECK(weft__usage_adopt(t.a->tracking->usage, ep[ALL - 1]->link));
    weft__stats_note(ep[ALL - 1]->link);
    CHECK(ep[ALL - 1]->link->stats_row > 0);
    again(&s);
    CHECK_EQ(used_rows(&s, &row), LIVE_LINKS);
    CHECK_EQ(s.view.head->n_promoted, 1);
    CHECK_EQ(s.view.head->capacity, 4);
    /* Scores are shown as they are found. */
    weft__usage_min_score(t.a->tracking->usage, ep[ALL - 1]->link, 77000000);
    weft__tracking_wake(t.a);
    UNTIL(&t, (again(&s), weft__stats_row(&s.view, ep[ALL - 1]->link->stats_row - 1u, &row),
               row.score == 77000000));
    CHECK(row.flags & LIVE_PROMOTED);
    look_away(&s);
    two_down(&t);
}

TEST(a_fork_neither_counts_nor_shows_for_its_parent) {
    struct two t;
    struct seen s;
    two_up(&t, "shm");
    look(&s, t.a);
    uint64_t before = counter(&s, "worker.allocations"), turns = counter(&s, "worker.turns");
    pid_t child = fork();
    if (child == 0) {
        weft_context_t *context = NULL;
        int ok = weft_am_send(t.ep, 1, NULL, 0, NULL, 0, NULL) == WEFT_ERR_FORKED;
        /* allocates, on a thread whose blocks were counted */
        ok &= weft_context_create(NULL, &context) == WEFT_OK;
        ok &= weft_worker_count(t.a, "worker.turns") == turns;
        ok &= s.view.head->pid != getpid(); /* which is how a reader knows */
        _exit(ok ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    again(&s);
    CHECK_EQ(counter(&s, "worker.allocations"), before);
    CHECK_EQ(counter(&s, "worker.turns"), turns);
    look_away(&s);
    two_down(&t);
}

TEST(without_fds_the_worker_goes_on) {
    weft_context_t *context;
    weft_worker_t *worker;
    CHECK_EQ(weft_context_create(NULL, &context), 0);
    for (uint64_t k = 1, done = 0; !done; k++) {
        weft__alloc_fail_at(k);
        weft_status_t st =
            weft_worker_create(context, &(weft_worker_params_t){.transports = "self"}, &worker);
        weft__alloc_fail_at(0);
        CHECK(st == WEFT_OK || st == WEFT_ERR_NO_MEMORY);
        if (st < 0) continue;
        int n;
        done = find(worker->id, &n) >= 0;
        CHECK_EQ(n, done);
        CHECK(weft_worker_progress(worker, 0) >= 0);
        weft_worker_destroy(worker);
        CHECK(k < 1000);
    }
    CHECK_EQ(weft_context_destroy(context), 0);
}

/* ---- a reader beside a writer */

static struct stats_row *written;
static _Atomic bool over;
static _Atomic uint64_t *last_word(struct stats_row *row) {
    return (_Atomic uint64_t *)(row + 1) - 1;
}
static void *write_rows(void *arg) {
    for (uint64_t n = 1; !atomic_load(&over); n++) {
        atomic_store_explicit(&written->sequence, written->sequence + 1, memory_order_relaxed);
        atomic_thread_fence(memory_order_release);
        atomic_store_explicit(last_word(written), n, memory_order_relaxed);
        for (volatile int i = 0; i < 100; i++) continue;
        atomic_store_explicit((_Atomic uint64_t *)&written->peer, n, memory_order_relaxed);
        atomic_store_explicit(&written->sequence, written->sequence + 1, memory_order_release);
        /* rows are written rarely, and yet it is often enough */
        for (volatile int i = 0; i < 500; i++) continue;
    }
    return NULL;
}

static size_t make_page(uint64_t *page, size_t len) {
    static const char names[] = "one\0two\0three";
    struct stats_head *h = (struct stats_head *)page;
    memset(page, 0, len);
    *h = (struct stats_head){.version = LIVE_VERSION,
                             .n_counters = 3,
                             .n_rows = 2,
                             .row_size = sizeof(struct stats_row)};
    memcpy(h->magic, LIVE_MAGIC, sizeof h->magic);
    h->counters_at = sizeof *h;
    h->names_at = h->counters_at + 3 * 8;
    h->names_len = sizeof names;
    h->rows_at = h->names_at + 16;
    h->size = h->rows_at + 2 * h->row_size;
    memcpy((char *)page + h->names_at, names, sizeof names);
    for (uint64_t i = 0; i < 3; i++) page[h->counters_at / 8 + i] = 10 + i;
    memset((char *)page + h->rows_at, 'x', 2 * h->row_size); /* strings without an end */
    ((struct stats_row *)((char *)page + h->rows_at))->sequence = 0;
    ((struct stats_row *)((char *)page + h->rows_at))->flags = LIVE_USED;
    ((struct stats_row *)((char *)page + h->rows_at))[1].sequence = 1; /* died while it wrote */
    return h->size;
}

TEST(a_row_is_read_whole_or_not_at_all) {
    static uint64_t page[1024], copy[1024];
    pthread_t thread;
    struct stats_view view;
    struct stats_row row;
    size_t len = make_page(page, sizeof page);
    written = (struct stats_row *)((char *)page + ((struct stats_head *)page)->rows_at);
    *last_word(written) = written->peer = 0;
    atomic_store(&over, false);
    CHECK_EQ(pthread_create(&thread, NULL, write_rows, NULL), 0);
    int whole = 0;
    bool same = true;
    double end = test_now() + 0.3;
    while (test_now() < end || (!whole && test_now() < end + 20)) {
        if (!weft__stats_copy(page, len, copy) || !weft__stats_read(copy, len, &view) ||
            !weft__stats_row(&view, 0, &row))
            same = false;
        if (row.flags & LIVE_TORN) continue;
        same &= row.peer == *last_word(&row);
        whole++;
    }
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    CHECK(same);
    CHECK(whole > 0);
}

/* ---- a page that may be anything */

TEST(a_page_is_read_and_each_shorter_one_is_refused) {
    static uint64_t page[1024], copy[1024];
    struct stats_view view;
    struct stats_row row;
    const char *name;
    uint64_t value;
    size_t len = make_page(page, sizeof page);
    CHECK(weft__stats_copy(page, len, copy) && weft__stats_read(copy, len, &view));
    CHECK(weft__stats_counter(&view, 2, &name, &value) && !strcmp(name, "three") && value == 12);
    CHECK(!weft__stats_counter(&view, 3, &name, &value));
    CHECK(weft__stats_row(&view, 0, &row) && strlen(row.where) == LIVE_WHERE - 1 &&
          strlen(row.link) == LIVE_STRING - 1);
    CHECK(weft__stats_row(&view, 1, &row) && row.flags & LIVE_TORN);
    CHECK(!weft__stats_row(&view, 2, &row));
    for (size_t shorter = 0; shorter < len; shorter++) {
        void *exact = malloc(shorter ? shorter : 1);
        memcpy(exact, page, shorter);
        CHECK(!weft__stats_read(exact, shorter, &view));
        CHECK(!weft__stats_copy(exact, shorter, copy));
        ((struct stats_head *)page)->size = (uint32_t)shorter; /* also when it owns up to it */
        memcpy(exact, page, shorter);
        CHECK(shorter < sizeof(struct stats_head) || !weft__stats_read(exact, shorter, &view) ||
              shorter >= ((struct stats_head *)page)->rows_at);
        ((struct stats_head *)page)->size = (uint32_t)len;
        free(exact);
    }
}

TEST(a_page_that_points_outside_is_refused) {
    static uint64_t page[1024], copy[1024];
    static const uint32_t bad[] = {0,    1,          7,          8,          4095,
                                   8193, 0x7fffffff, 0x80000000, 0xfffffff8, 0xffffffff};
    struct stats_view view;
    struct stats_head *h = (struct stats_head *)page;
    uint32_t *const fields[] = {&h->version,     &h->size,     &h->n_counters,
                                &h->counters_at, &h->names_at, &h->names_len,
                                &h->n_rows,      &h->rows_at,  &h->row_size};
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++) {
        for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
            size_t len = make_page(page, sizeof page);
            bool may = (fields[f] == &h->n_rows && bad[b] < 2) ||
                       (fields[f] == &h->version && bad[b] == LIVE_VERSION);
            *fields[f] = bad[b];
            CHECK_EQ(weft__stats_read(page, len, &view), may);
            CHECK_EQ(weft__stats_copy(page, len, copy), may);
        }
    }
    size_t len = make_page(page, sizeof page);
    h->magic[0] ^= 1;
    CHECK(!weft__stats_read(page, len, &view));
    make_page(page, sizeof page);
    ((char *)page)[h->names_at + h->names_len - 1] = 'x'; /* the last name has no end */
    CHECK(!weft__stats_read(page, len, &view));
}
