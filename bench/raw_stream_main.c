/*
 * One way, as fast as the machine goes, with nothing in between: the figures that Weft's rates and
 * bandwidths are held against. Prints name TAB value TAB unit; between two pinned processes, the
 * whole of what was sent has been taken.
 *
 *     raw_stream ring | pipe | halves | tcp | copy  [SECONDS [SIZE]]
 *
 * ring: 8 B messages through a shared ring, a slot each. pipe: messages of SIZE copied into shared
 * memory and out of it. halves: messages of SIZE in shared memory, of which each process copies a
 * half. tcp: a busy loopback connection. copy: memory to memory, one process.
 */
#define _GNU_SOURCE
#include "cores.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void die(const char *what) {
    perror(what);
    exit(1);
}

/*
 * From the beginning of a page, as the library's and its peers' are measured: where a copy goes to
 * the first 31 bytes behind its source's place in the page, the string instruction takes twenty
 * times as long on some processors.
 */
static char *bytes_of(size_t size) {
    char *p = NULL;
    if (posix_memalign((void **)&p, (size_t)sysconf(_SC_PAGESIZE), size) != 0)
        die("posix_memalign");
    memset(p, 1, size);
    return p;
}

/* The receiver, on a core of its own until it is killed. */
static pid_t beside(void (*receive)(void *), void *arg) {
    fail_with_children();
    pid_t child = fork();
    if (child < 0) die("fork");
    if (child > 0) {
        pin(0);
        return child;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(1);
    receive(arg);
    _exit(0);
}

static void end(pid_t child) {
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* ---- messages of 8 B ------------------------------------------------------------------------- */

enum { RING_SLOTS = 1024, TAKEN_EACH = 128, BURST = 4096 };
struct slot {
    _Alignas(64) _Atomic uint64_t sequence;
    uint64_t payload;
};
struct ring {
    _Alignas(64) _Atomic uint64_t taken;
    struct slot slots[RING_SLOTS];
};

/* The receiver calls a function for each message. */
static uint64_t sum;
static void add(uint64_t payload) {
    sum += payload;
}
static void (*volatile handler)(uint64_t) = add;

static void take_messages(void *arg) {
    struct ring *ring = arg;
    for (uint64_t n = 0;; n++) {
        struct slot *slot = &ring->slots[n % RING_SLOTS];
        while (atomic_load_explicit(&slot->sequence, memory_order_acquire) != n + 1) {
        }
        handler(slot->payload);
        if ((n + 1) % TAKEN_EACH == 0)
            atomic_store_explicit(&ring->taken, n + 1, memory_order_release);
    }
}

static void ring_rate(double seconds) {
    struct ring *ring = shared_memory(sizeof *ring);
    pid_t child = beside(take_messages, ring);
    uint64_t n = 0, taken = 0;
    double begin = now_ns(), end_at = begin + seconds * 1e9;
    while (now_ns() < end_at) {
        for (int i = 0; i < BURST; i++, n++) {
            while (n - taken >= RING_SLOTS)
                taken = atomic_load_explicit(&ring->taken, memory_order_acquire);
            struct slot *slot = &ring->slots[n % RING_SLOTS];
            slot->payload = n;
            atomic_store_explicit(&slot->sequence, n + 1, memory_order_release);
        }
    }
    while (atomic_load_explicit(&ring->taken, memory_order_acquire) < n) {
    }
    printf("raw ring\t%.5g\tM/s\n", (double)n / (now_ns() - begin) * 1e3);
    end(child);
}

/* ---- copied twice ---------------------------------------------------------------------------- */

enum { PIPE_SLOTS = 4 };
static const size_t largest_slot = 1 << 20;
struct pipe {
    _Alignas(64) _Atomic uint64_t filled;
    _Alignas(64) _Atomic uint64_t emptied;
    size_t size, slot; /* of a message; a piece of it */
    char *bytes;       /* PIPE_SLOTS slots */
};

static void empty_pipe(void *arg) {
    struct pipe *p = arg;
    char *to = bytes_of(p->size);
    uint64_t pieces = p->size / p->slot;
    for (uint64_t n = 0;; n++) {
        while (atomic_load_explicit(&p->filled, memory_order_acquire) <= n) __builtin_ia32_pause();
        memcpy(to + n % pieces * p->slot, p->bytes + n % PIPE_SLOTS * p->slot, p->slot);
        atomic_store_explicit(&p->emptied, n + 1, memory_order_release);
    }
}

static void pipe_bandwidth(double seconds, size_t size) {
    struct pipe *p = shared_memory(sizeof *p);
    char *from = bytes_of(size);
    p->size = size;
    p->slot = size <= largest_slot ? size : largest_slot / PIPE_SLOTS; /* which measured best */
    p->bytes = shared_memory(PIPE_SLOTS * p->slot);
    pid_t child = beside(empty_pipe, p);
    uint64_t n = 0, pieces = size / p->slot;
    double begin = now_ns(), end_at = begin + seconds * 1e9;
    while (now_ns() < end_at) {
        for (uint64_t piece = 0; piece < pieces; piece++, n++) {
            while (n - atomic_load_explicit(&p->emptied, memory_order_acquire) >= PIPE_SLOTS)
                __builtin_ia32_pause();
            memcpy(p->bytes + n % PIPE_SLOTS * p->slot, from + piece * p->slot, p->slot);
            atomic_store_explicit(&p->filled, n + 1, memory_order_release);
        }
    }
    while (atomic_load_explicit(&p->emptied, memory_order_acquire) < n) __builtin_ia32_pause();
    printf("raw pipe\t%.5g\tGB/s\n", (double)(n * p->slot) / (now_ns() - begin));
    end(child);
}

/* ---- copied once, by both -------------------------------------------------------------------- */

struct halves {
    _Alignas(64) _Atomic uint64_t begun;
    _Alignas(64) _Atomic uint64_t done;
    size_t half;
    char *from, *to;
};

static void copy_front(void *arg) {
    struct halves *h = arg;
    for (uint64_t n = 1;; n++) {
        while (atomic_load_explicit(&h->begun, memory_order_acquire) < n) __builtin_ia32_pause();
        memcpy(h->to, h->from, h->half);
        atomic_store_explicit(&h->done, n, memory_order_release);
    }
}

static void halves_bandwidth(double seconds, size_t size) {
    struct halves *h = shared_memory(sizeof *h);
    *h = (struct halves){.half = size / 2, .from = shared_memory(size), .to = shared_memory(size)};
    memset(h->from, 1, size);
    pid_t child = beside(copy_front, h);
    uint64_t n = 0;
    double begin = now_ns(), end_at = begin + seconds * 1e9;
    while (now_ns() < end_at) {
        atomic_store_explicit(&h->begun, ++n, memory_order_release);
        memcpy(h->to + h->half, h->from + h->half, size - h->half);
        while (atomic_load_explicit(&h->done, memory_order_acquire) < n) __builtin_ia32_pause();
    }
    printf("raw halves\t%.5g\tGB/s\n", (double)(n * size) / (now_ns() - begin));
    end(child);
}

/* ---- a connection ---------------------------------------------------------------------------- */

enum { TCP_READ = 1 << 20 };
struct connection {
    int ends[2];
    _Atomic uint64_t *taken;
};

static void connect_ends(int ends[2]) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&address, len) < 0 || listen(listener, 1) < 0) die("listen");
    getsockname(listener, (void *)&address, &len);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(ends[0], (void *)&address, len) < 0) die("connect");
    ends[1] = accept(listener, NULL, NULL);
    for (int i = 0; i < 2; i++) setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    close(listener);
}

static void drain(void *arg) {
    struct connection *c = arg;
    char *to = bytes_of(TCP_READ);
    for (;;) {
        ssize_t n = recv(c->ends[1], to, TCP_READ, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN)) die("recv");
        if (n > 0) atomic_fetch_add(c->taken, (uint64_t)n);
    }
}

static void tcp_bandwidth(double seconds, size_t size) {
    struct connection c = {.taken = shared_memory(4096)};
    char *from = bytes_of(size);
    connect_ends(c.ends);
    pid_t child = beside(drain, &c);
    uint64_t sent = 0;
    double begin = now_ns(), end_at = begin + seconds * 1e9;
    while (now_ns() < end_at) {
        for (size_t at = 0; at < size;) {
            ssize_t n = send(c.ends[0], from + at, size - at, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (n < 0 && errno != EAGAIN) die("send");
            if (n > 0) at += (size_t)n;
        }
        sent += size;
    }
    while (atomic_load(c.taken) < sent) {
    }
    printf("raw tcp\t%.5g\tGB/s\n", (double)sent / (now_ns() - begin));
    end(child);
}

static void copy_bandwidth(double seconds, size_t size) {
    char *from = bytes_of(size), *to = bytes_of(size);
    uint64_t n = 0;
    pin(0);
    double begin = now_ns(), end_at = begin + seconds * 1e9;
    for (; now_ns() < end_at; n++) {
        memcpy(to, from, size);
        __asm__ volatile("" ::: "memory");
    }
    printf("raw copy\t%.5g\tGB/s\n", (double)(n * size) / (now_ns() - begin));
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    double seconds = argc > 2 ? atof(argv[2]) : 0.3;
    size_t size = argc > 3 ? (size_t)atol(argv[3]) : 1 << 20;
    if (size == 0 || (size & (size - 1)) != 0) {
        fprintf(stderr, "raw_stream: SIZE is a power of two\n");
        return 2;
    }
    if (strcmp(what, "ring") == 0) {
        ring_rate(seconds);
    } else if (strcmp(what, "pipe") == 0) {
        pipe_bandwidth(seconds, size);
    } else if (strcmp(what, "halves") == 0) {
        halves_bandwidth(seconds, size);
    } else if (strcmp(what, "tcp") == 0) {
        tcp_bandwidth(seconds, size);
    } else if (strcmp(what, "copy") == 0) {
        copy_bandwidth(seconds, size);
    } else {
        fprintf(stderr, "raw_stream ring | pipe | halves | tcp | copy  [SECONDS [SIZE]]\n");
        return 2;
    }
    return 0;
}
