/* What the adapters do when a worker's descriptor is readable: one progress, and then looks. */
#include <tests/harness.h>
#include <weft/adapters/readable.h>
#include <weft/weft.h>

enum { LINK = 1, LINKS = 60 };

/* A worker that sends itself a message from the handler of the one before. */
struct chain {
    weft_context_t *context;
    weft_worker_t *worker;
    weft_ep_t *ep;
    unsigned received, closed;
};

static void send_link(struct chain *chain) {
    CHECK(weft_am_send(chain->ep, LINK, "link", 4, NULL, 0, NULL) >= 0);
}

static void on_link(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct chain *chain = arg;
    if (++chain->received < LINKS) send_link(chain);
}

static void on_closed(weft_status_t status, void *arg) {
    struct chain *chain = arg;
    CHECK_EQ(status, WEFT_OK);
    chain->worker = NULL;
    chain->closed++;
}

static void begin(struct chain *chain) {
    char address[256];
    size_t len = sizeof address;
    *chain = (struct chain){0};
    CHECK_EQ(weft_context_create(NULL, &chain->context), WEFT_OK);
    CHECK_EQ(weft_worker_create(chain->context, &(weft_worker_params_t){.transports = "self"},
                                &chain->worker),
             WEFT_OK);
    CHECK_EQ(weft_am_handler_set(chain->worker, LINK, on_link, chain), WEFT_OK);
    CHECK(weft_worker_fd_level(chain->worker) >= 0);
    CHECK_EQ(weft_worker_address(chain->worker, address, &len), WEFT_OK);
    CHECK_EQ(weft_connect_address(chain->worker, address, len, NULL, &chain->ep), WEFT_OK);
    send_link(chain);
    while (chain->received == 0) CHECK_EQ(weft_worker_wait(chain->worker, 20000), WEFT_OK);
}

static void close_by_reports(struct chain *chain, unsigned looks) {
    weft_op_t op = {.done = on_closed, .arg = chain};
    chain->received = LINKS; /* the chain ends */
    CHECK_EQ(weft_worker_close(chain->worker, &op), WEFT_IN_PROGRESS);
    while (chain->worker) weft_adapter_readable(&chain->worker, 1, looks);
    weft_adapter_readable(&chain->worker, 1, looks); /* a report that was taken before: nothing */
    CHECK_EQ(chain->closed, 1);
    CHECK_EQ(weft_context_destroy(chain->context), WEFT_OK);
}

/* How many reports it takes until all have come. */
static unsigned reports_of(unsigned looks) {
    struct chain chain;
    unsigned reports = 0;
    begin(&chain);
    for (; chain.received < LINKS && reports < 100 * LINKS; reports++)
        weft_adapter_readable(&chain.worker, 1, looks);
    CHECK_EQ(chain.received, LINKS);
    close_by_reports(&chain, looks);
    return reports;
}

TEST(looks_find_what_a_report_brought_about) {
    unsigned without = reports_of(0), with = reports_of(WEFT_ADAPTER_LOOKS);
    printf("  %u reports without looks, %u with them\n", without, with);
    CHECK(with < without);
}

TEST(a_worker_that_closes_within_a_look_is_left_alone) {
    struct chain chain;
    begin(&chain);
    close_by_reports(&chain, WEFT_ADAPTER_LOOKS);
}
