/* Two libraries that share a worker have fewer descriptors and connections than with one each. */
#include "shared.h"

#include <tests/support/descriptors.h>

struct cost {
    int descriptors, links;
};

static int count_links(const weft_worker_t *worker) {
    int n = 0;
    list_for_each(node, &worker->links) n++;
    return n;
}

static int ready;
static void on_ready(weft_ep_t *ep, void *arg) {
    ready++;
}

static void dial(weft_worker_t *from, weft_worker_t *to) {
    char address[256];
    size_t len = sizeof address;
    weft_ep_t *ep;
    CHECK_EQ(weft_worker_address(to, address, &len), 0);
    CHECK_EQ(
        weft_connect_address(from, address, len, &(weft_ep_params_t){.on_ready = on_ready}, &ep),
        0);
}

static void drive(struct two *program, struct two *library, int until) {
    double end = test_now() + test_timeout(60);
    while (ready < until && test_now() < end) {
        two_turn(program);
        if (library) two_turn(library);
    }
    CHECK_EQ(ready, until);
}

/* A program and a library, each connected to itself. */
static struct cost with_workers_of_their_own(const char *transport) {
    struct two program, library;
    int before = n_descriptors();
    ready = 0;
    two_workers(&program, transport, NULL, 0);
    two_workers(&library, transport, NULL, 0);
    dial(program.a, program.b);
    dial(library.a, library.b);
    drive(&program, &library, 2);
    struct cost cost = {n_descriptors() - before, count_links(program.a) + count_links(library.a)};
    two_down(&library);
    two_down(&program);
    return cost;
}

static struct cost with_shared_workers(const char *transport) {
    struct sharing s;
    int before = n_descriptors();
    ready = 0;
    share_up(&s, transport);
    dial(s.two.a, s.two.b);
    drive(&s.two, NULL, 1);
    dial(s.library[0], s.library[1]);
    drive(&s.two, NULL, 2);
    struct cost cost = {n_descriptors() - before, count_links(s.two.a)};
    share_down(&s);
    return cost;
}

TEST_EACH(a_shared_worker_saves_descriptors_and_connections) {
    if (strcmp(transport, "self") == 0) return;
    struct cost own = with_workers_of_their_own(transport), shared = with_shared_workers(transport);
    printf("  %s: %d descriptors and %d connections, shared %d and %d\n", transport,
           own.descriptors, own.links, shared.descriptors, shared.links);
    CHECK_EQ(own.links, 2);
    CHECK_EQ(shared.links, 1);
    CHECK(shared.descriptors < own.descriptors);
}
