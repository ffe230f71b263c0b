/*
 * A producer is killed between every two instructions of sending: through the mailbox, and through
 * a ring, to a receiver that polls, and to one that sleeps. Each time another producer goes on with
 * the same receiver, what the dead one had sent arrives whole and once, and nothing that it had not
 * finished arrives.
 */
#include "pair.h"
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <transports/shm/lane/shm.h>

/* As many as a tx slot has nodes: the next send finds them passed, and so takes the same
 * instructions each time. */
enum {
    BEFORE = SLOT_TABLE_NODES,
    SHORT_LEN = 20,
    BCOPY_LEN = 300,
    ZCOPY_LEN = 500,
    STAGED_LEN = SHM_BCOPY_MAX + 700, /* goes through a chunk of the producer's staging pool */
    INSTRUCTIONS = 60000
};

/* Under a sanitizer most instructions are its own, seven for each of ours, and how long all take
 * goes with their square. */
#ifdef __SANITIZE_ADDRESS__
enum { EACH = 7 };
#else
enum { EACH = 1 };
#endif

/* Of a large message most instructions are one copy, the same again and again: of what lies
 * between those near the begin and near the end some do. */
enum { NEAR = 150, APART = 210 * EACH * EACH };

enum form { SHORT, BCOPY, ZCOPY, STAGED, N_FORMS };
static const size_t lengths[N_FORMS] = {SHORT_LEN, BCOPY_LEN, ZCOPY_LEN, STAGED_LEN};

/* What parent and victim share. */
struct page {
    volatile int through; /* the send that is stepped through has returned */
};

static uint8_t byte_of(uint64_t number, size_t i) {
    return (uint8_t)(number * 31 + i * 7 + 1);
}

/* Ids are forms. */
static uint8_t message[8 + STAGED_LEN];
static void prepare(uint64_t number) {
    memcpy(message, &number, 8);
    for (size_t i = 0; i < STAGED_LEN; i++) message[8 + i] = byte_of(number, i);
}

static size_t pack(void *to, void *arg) {
    memcpy(to, message, 8 + BCOPY_LEN);
    return 8 + BCOPY_LEN;
}

/* What was prepared. */
static weft_status_t send(struct lane *lane, enum form form, uint64_t number) {
    size_t len = lengths[form];
    weft_iov_t halves[] = {{message + 8, len / 2}, {message + 8 + len / 2, len - len / 2}};
    if (form == SHORT) return lane->ops->am_short(lane, SHORT, number, message + 8, len);
    if (form == BCOPY) return lane->ops->am_bcopy(lane, BCOPY, pack, NULL);
    /* copied within the call */
    return lane->ops->am_zcopy(lane, (uint8_t)form, &(struct lane_zcopy){message, 8, halves, 2},
                               NULL);
}

static weft_status_t post(struct lane *lane, enum form form, uint64_t number) {
    prepare(number);
    return send(lane, form, number);
}

static bool is_whole(const struct pair_message *m, enum form form, uint64_t number) {
    uint64_t found;
    size_t len = lengths[form];
    if (m->len != 8 + len || m->id != form) return false;
    memcpy(&found, m->data, 8);
    for (size_t i = 0; i < len; i++)
        if (m->data[8 + i] != byte_of(number, i)) return false;
    return found == number;
}

/* ---- the victim ------------------------------------------------------------------------------ */

static _Noreturn void victim(const char *directory, enum form form, struct page *page) {
    struct pair p = {.transport = &weft__transport_shm};
    struct lane *lane = NULL;
    weft_setting_t settings[] = {
        {"shm.directory", directory}, {"shm.copy", "staged"}, {"lanes.switch", "off"}};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    p.a.pair = &p;
    if (weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 3},
                            &p.context) < 0)
        _exit(3);
    if (weft__reactor_create(p.context, &(struct reactor_params){0}, &p.reactor_a) < 0) _exit(3);
    p.reactor_b = p.reactor_a;
    if (pair_iface(&p, p.reactor_a, 0xc3, &p.iface_a) < 0) _exit(3);
    if (p.iface_a->ops->connect_uri(p.iface_a, "pair", &lane) < 0) _exit(3);
    lane->owner = &p.a;
    if (!pair_until(&p, p.a.n_open == 1)) _exit(3);
    for (uint64_t i = 0; i < BEFORE; i++)
        if (post(lane, form, i) != WEFT_OK) _exit(3);
    prepare(BEFORE);
    /* now the loader has found it, and is not stepped through */
    if (write(-1, "", 0) == 0) _exit(3);
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    raise(SIGSTOP);
    send(lane, form, BEFORE);
    page->through = 1;
    for (;;) pause();
}

/* Where a victim stands after its n-th instruction: all of one form take the same ones. */
struct path {
    unsigned len; /* 0: not known yet */
    uint64_t at[INSTRUCTIONS + 1];
};
static struct path path;

static bool steps_once(pid_t pid) {
    int status;
    return ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) == 0 && waitpid(pid, &status, 0) == pid &&
           WIFSTOPPED(status);
}

#ifdef __x86_64__
/* False: it ended, or did not stop within a minute. */
static bool stops(pid_t pid) {
    int status;
    pid_t who;
    for (double give_up = test_now() + test_timeout(60);
         (who = waitpid(pid, &status, WNOHANG)) == 0;)
        if (test_now() > give_up || sched_yield() < 0) return false;
    return who == pid && WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP;
}

static uint64_t stands_at(pid_t pid) {
    struct user_regs_struct registers = {0};
    ptrace(PTRACE_GETREGS, pid, NULL, &registers);
    return registers.rip;
}

static bool set_stand(pid_t pid, uint64_t at) {
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, pid, NULL, &registers) < 0) return false;
    registers.rip = at;
    return ptrace(PTRACE_SETREGS, pid, NULL, &registers) == 0;
}

/* Runs to a breakpoint, and takes it away. */
static bool runs_to(pid_t pid, uint64_t at) {
    enum { BREAKPOINT = 0xcc };
    void *where = (void *)(uintptr_t)at;
    errno = 0;
    long text = ptrace(PTRACE_PEEKTEXT, pid, where, NULL);
    if (text == -1 && errno) return false;
    long broken = (long)(((unsigned long)text & ~0xfful) | BREAKPOINT);
    return ptrace(PTRACE_POKETEXT, pid, where, broken) == 0 &&
           ptrace(PTRACE_CONT, pid, NULL, NULL) == 0 && stops(pid) && stands_at(pid) == at + 1 &&
           ptrace(PTRACE_POKETEXT, pid, where, text) == 0 && set_stand(pid, at);
}

/* How often a victim comes by path.at[m] on its first `m` instructions, itself included. */
static unsigned visits(unsigned m) {
    unsigned n = 0;
    for (unsigned i = 1; i <= m; i++) n += path.at[i] == path.at[m];
    return n;
}

/* As far on the way to the `n`th instruction as a few breakpoints lead: one costs about as much as
 * stepping over ten instructions. How far. */
static unsigned run_ahead(pid_t pid, unsigned n) {
    enum { MOST_VISITS = 4, COST = 10 };
    unsigned best = 0, least = n;
    if (n >= path.len) return 0;
    for (unsigned m = n; m > 0 && n - m < least; m--) {
        unsigned times = visits(m);
        if (times > MOST_VISITS || n - m + COST * times >= least) continue;
        best = m;
        least = n - m + COST * times;
    }
    for (unsigned left = best ? visits(best) : 0; left > 0; left--) {
        bool stays = stands_at(pid) == path.at[best]; /* a breakpoint there would stop it at once */
        if (stays && !steps_once(pid)) return 0;
        if (stays && stands_at(pid) == path.at[best]) continue;
        CHECK(runs_to(pid, path.at[best]));
    }
    return best;
}
#else
static uint64_t stands_at(pid_t pid) {
    return 0;
}
static unsigned run_ahead(pid_t pid, unsigned n) {
    return 0;
}
#endif

/* Lets the victim take `n` instructions, or as many as it takes to get through. How many it
 * took. */
static unsigned step(pid_t pid, unsigned n, const struct page *page) {
    unsigned taken = run_ahead(pid, n);
    bool first = path.len == 0;
    if (first) path.at[0] = stands_at(pid);
    for (; taken < n && !page->through; taken++) {
        if (!steps_once(pid)) return 0;
        if (first) path.at[taken + 1] = stands_at(pid);
    }
    if (first) path.len = taken + 1;
    CHECK_EQ(stands_at(pid), path.at[taken]);
    return taken;
}

/* ---- the others ------------------------------------------------------------------------------ */

struct scene {
    struct pair p; /* a is the producer that lives, b the receiver */
    struct end v;  /* the victim, at the receiver */
    enum form form;
    bool asleep;
    uint64_t rounds;
    struct page *page;
};

static bool readable(int fd, int ms) {
    return poll(&(struct pollfd){fd, POLLIN, 0}, 1, ms) == 1;
}

/* Turns of the receiver: as it likes, or only when its fd says so. */
static void receiver_turn(struct scene *s, int ms) {
    if (!s->asleep || readable(weft__reactor_fd(s->p.reactor_b), ms))
        weft__reactor_progress(s->p.reactor_b, 0);
}

/* A message each way between those that live. */
static void exchange(struct scene *s) {
    uint64_t number = s->rounds++;
    size_t at_b = s->p.b.n_messages, at_a = s->p.a.n_messages;
    double give_up = test_now() + test_timeout(60);
    CHECK_EQ(post(s->p.a.lane, s->form, number), WEFT_OK);
    while (s->p.b.n_messages == at_b && test_now() < give_up) receiver_turn(s, 20000);
    CHECK_EQ(s->p.b.n_messages, at_b + 1);
    CHECK(is_whole(&s->p.b.messages[at_b], s->form, number));
    CHECK_EQ(post(s->p.b.lane, s->form, number), WEFT_OK);
    while (s->p.a.n_messages == at_a && test_now() < give_up)
        weft__reactor_progress(s->p.reactor_a, 0);
    CHECK_EQ(s->p.a.n_messages, at_a + 1);
    pair_forget(&s->p.a);
    pair_forget(&s->p.b);
}

static void settle(struct scene *s) {
    if (!s->asleep) return;
    int fd = weft__reactor_fd(s->p.reactor_b);
    do weft__reactor_progress(s->p.reactor_b, 0);
    while (readable(fd, 0));
}

/* One victim, killed after `n` instructions. How many it took. */
static unsigned kill_after(struct scene *s, unsigned n) {
    int status;
    s->page->through = 0;
    memset(&s->v, 0, sizeof s->v);
    s->v.pair = &s->p;
    s->p.next_accepted = &s->v;
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) victim(s->p.directory, s->form, s->page);
    for (double give_up = test_now() + test_timeout(60);
         test_now() < give_up && s->v.n_messages < BEFORE; usleep(50))
        weft__reactor_progress(s->p.reactor_b, 0);
    CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    settle(s);
    unsigned taken = step(pid, n, s->page);
    bool through = s->page->through;
    exchange(s); /* while it stands there */
    settle(s);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    exchange(s); /* and when it is dead */
    for (double give_up = test_now() + test_timeout(60); !s->v.n_down && test_now() < give_up;
         usleep(50))
        receiver_turn(s, 20000);
    CHECK_EQ(s->v.down, WEFT_ERR_PEER_FAILED);
    CHECK(s->v.n_messages == BEFORE || s->v.n_messages == BEFORE + 1);
    if (through) CHECK_EQ(s->v.n_messages, BEFORE + 1);
    for (size_t i = 0; i < s->v.n_messages; i++) CHECK(is_whole(&s->v.messages[i], s->form, i));
    pair_end_close(&s->v, true);
    exchange(s); /* and when it is forgotten */
    CHECK_EQ(s->p.a.n_down + s->p.b.n_down, 0);
    return taken;
}

/* From the `n`th instruction to the next one that is stood at. */
static unsigned apart(enum form form, unsigned n, unsigned total) {
    if (form < ZCOPY || n < NEAR || total - n <= NEAR) return EACH;
    unsigned left = total - n - NEAR, step = left < APART ? left : APART;
    return step < EACH ? EACH : step - step % EACH;
}

static void everywhere(const char *rings, enum form form, bool asleep) {
    struct scene s = {.form = form, .asleep = asleep};
    unsigned total, arrived = 0, kills = 0;
    setenv("WEFT_SHM_RINGS", rings, 1);
    s.page = mmap(NULL, sizeof *s.page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(s.page != MAP_FAILED);
    pair_open(&s.p, &weft__transport_shm, PAIR_BY_URI);
    pair_connect(&s.p);
    char by[160];
    s.p.b.lane->ops->describe(s.p.b.lane, by, sizeof by);
    CHECK(strstr(by, *rings == '0' ? "by mailbox" : "by ring"));
    if (asleep) CHECK(weft__reactor_fd(s.p.reactor_b) >= 0);
    path.len = 0;
    total = kill_after(&s, INSTRUCTIONS);
    CHECK(total > 20 && total < INSTRUCTIONS);
    for (unsigned n = total % EACH; n <= total; n += apart(form, n, total)) { /* the last, too */
        kill_after(&s, n);
        kills++;
        arrived += s.v.n_closed == 1 && s.page->through;
    }
    /* Who is killed early has sent nothing, and who is killed late has sent it all. */
    CHECK(arrived > 0 && arrived < kills);
    printf("  killed at %u of %u instructions\n", kills, total);
    s.asleep = false;
    pair_close(&s.p);
    munmap(s.page, sizeof *s.page);
    unsetenv("WEFT_SHM_RINGS");
}

TEST(killed_anywhere_in_a_short_send_by_the_mailbox) {
    everywhere("0", SHORT, false);
}
TEST(killed_anywhere_in_a_packed_send_by_the_mailbox) {
    everywhere("0", BCOPY, false);
}
TEST(killed_anywhere_in_a_gathered_send_by_the_mailbox) {
    everywhere("0", ZCOPY, false);
}
TEST(killed_anywhere_in_a_staged_send_by_the_mailbox) {
    everywhere("0", STAGED, false);
}
TEST(killed_anywhere_while_the_receiver_sleeps_on_its_mailbox) {
    everywhere("0", SHORT, true);
}
TEST(killed_anywhere_in_a_short_send_by_a_ring) {
    everywhere("64", SHORT, false);
}
TEST(killed_anywhere_in_a_gathered_send_by_a_ring) {
    everywhere("64", ZCOPY, false);
}
TEST(killed_anywhere_in_a_staged_send_by_a_ring) {
    everywhere("64", STAGED, false);
}
TEST(killed_anywhere_while_the_receiver_of_a_ring_sleeps) {
    everywhere("64", SHORT, true);
}
