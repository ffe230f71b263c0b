/*
 * A bulletin board in one process's memory: others take a place by a fetch-and-add and put a note.
 *     bulletin keep shm://board 2    prints its URI on standard error; ends after two writers
 *     bulletin shm://board "a note" "another"
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

enum { KEY = 1, PLACES = 96, LINE = 56, MAY = WEFT_MEM_WRITE | WEFT_MEM_ATOMIC };
struct board {
    uint64_t taken;
    char note[PLACES][LINE];
};
static weft_worker_t *worker;
static weft_mem_t *mem;   /* the keeper's */
static weft_rkey_t *rkey; /* a writer's */
static int writers = 1, done;

static void must(weft_status_t status, const char *what) {
    char text[512];
    if (status >= 0) return;
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    exit(1);
}

static void on_done(weft_status_t status, void *what) {
    must(status, what), done = 1;
}
static void finish(weft_status_t status, const char *what) {
    must(status, what);
    while (status == WEFT_IN_PROGRESS && !done) weft_worker_wait(worker, -1);
}

/* The key gives the region's rights. After the release no process can access the region. */
static void on_writer(weft_ep_t *ep, void *arg) {
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    must(weft_mem_pack(mem, key, &len), "pack");
    must(weft_am_send(ep, KEY, key, len, NULL, 0, NULL), "key");
}
static void on_key(weft_ep_t *ep, weft_am_t *am, void *arg) {
    must(weft_rkey_unpack(ep, am->header, am->header_len, &rkey), "key");
}
static void on_left(weft_ep_t *ep, weft_status_t status, void *arg) {
    if (status != WEFT_ERR_PEER_CLOSED) must(status, "a writer");
    writers--;
}
static void on_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    must(status, "the board");
}
static void keep(const char *uri) {
    weft_listener_t *listener;
    weft_mem_info_t info;
    weft_mem_params_t region = {.rights = MAY};
    must(weft_mem_alloc(worker, sizeof(struct board), &region, &mem), "memory");
    must(weft_mem_describe(mem, &info), "memory");
    weft_listen_params_t params = {.on_endpoint = on_writer, .on_error = on_left};
    must(weft_listen(worker, uri, &params, &listener), uri);
    fprintf(stderr, "listening at %s\n", weft_listener_uri(listener));
    while (writers > 0) weft_worker_wait(worker, -1);
    const struct board *board = info.base;
    for (uint64_t i = 0; i < board->taken && i < PLACES; i++)
        printf("%.*s\n", LINE, board->note[i]);
    finish(weft_mem_release(mem, &(weft_op_t){.done = on_done, .arg = "release"}), "release");
}

static void post(const char *uri, char **notes, int n_notes) {
    weft_ep_t *ep;
    weft_rkey_info_t board;
    must(weft_am_handler_set(worker, KEY, on_key, NULL), "handler");
    must(weft_connect(worker, uri, &(weft_ep_params_t){.on_error = on_lost}, &ep), uri);
    while (!rkey) weft_worker_wait(worker, -1);
    must(weft_rkey_describe(rkey, &board), "key");
    for (int i = 0; i < n_notes; i++) {
        uint64_t n, first = board.base + offsetof(struct board, note); /* in the keeper */
        must(weft_atomic_fetch_wait(ep, WEFT_ATOMIC_ADD, 8, 1, 0, &n, board.base, rkey), "place");
        uint64_t at = first + n % PLACES * LINE;
        must(weft_put_wait(ep, notes[i], strnlen(notes[i], LINE), at, rkey), "note");
    }
    weft_op_t op = {.done = on_done, .arg = "flush", .flags = WEFT_FLUSH_REMOTE};
    finish(weft_ep_flush(ep, &op), op.arg);
    weft_rkey_release(rkey);
    must(weft_ep_close_wait(ep, WEFT_CLOSE_FLUSH), "close");
}

int main(int argc, char **argv) {
    weft_context_t *context;
    int keeps = argc > 2 && strcmp(argv[1], "keep") == 0;
    if (argc < 3) return 2;
    if (keeps && argc > 3) writers = atoi(argv[3]);
    must(weft_context_create(NULL, &context), "context");
    must(weft_worker_create(context, NULL, &worker), "worker");
    keeps ? keep(argv[2]) : post(argv[1], argv + 2, argc - 2);
    weft_worker_destroy(worker);
    weft_context_destroy(context);
}
