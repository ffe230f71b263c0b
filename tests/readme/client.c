/*
 * client URI: sends "hello" as message 1 to the echo server of README, and prints what comes back
 * as message 2.
 */
#include <stdio.h>
#include <weft/weft.h>

static int answered;

static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    (void)ep, (void)arg;
    printf("answered: %.*s\n", (int)am->len, (const char *)am->data);
    answered = 1;
}

int main(int argc, char **argv) {
    weft_context_t *ctx;
    weft_worker_t *worker;
    weft_ep_t *ep;
    weft_iov_t iov = {"hello", 5};
    if (argc != 2 || weft_context_create(NULL, &ctx) || weft_worker_create(ctx, NULL, &worker))
        return 1;
    weft_am_handler_set(worker, 2, on_answer, NULL);
    if (weft_connect(worker, argv[1], NULL, &ep) < 0) return 2;
    if (weft_am_send(ep, 1, NULL, 0, &iov, 1, NULL) < 0) return 3;
    while (!answered)
        if (weft_worker_wait(worker, 10000) < 0) return 4;
    weft_context_destroy(ctx);
    return 0;
}
