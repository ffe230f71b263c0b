/* A reply is held for its client until its bytes have left. */
#include "replies.h"

#include <stdlib.h>
#include <string.h>

enum { COST = 512 }; /* bytes that a reply which waits takes besides its value */

/* A reply that waits. */
struct sending {
    struct client *client;
    size_t size;
    reply_release_fn release; /* NULL: it has no bytes */
    void *bytes;
    struct sending *next;
};
static struct sending *spare;

static struct sending *take_spare(void) {
    struct sending *sending = spare;
    if (!sending) return malloc(sizeof *sending);
    spare = sending->next;
    return sending;
}

static void add_spare(struct sending *sending) {
    sending->next = spare;
    spare = sending;
}

void replies_end(void) {
    for (struct sending *each; (each = spare) != NULL;) {
        spare = each->next;
        free(each);
    }
}

static void on_sent(weft_status_t status, void *arg) {
    struct sending *sending = arg;
    client_let_go(sending->client, sending->size);
    if (sending->release) sending->release(sending->bytes);
    add_spare(sending);
}

/* Returns whether `release` will be called. A request whose reply is lost would never end, so its
 * client is closed. */
static bool send_reply(struct client *client, const struct redis_reply *head, const void *value,
                       size_t len, reply_release_fn release, void *bytes) {
    if (client->closing) return false;
    struct sending *sending = take_spare();
    if (!sending) {
        client_close(client);
        return false;
    }
    *sending = (struct sending){client, COST + len, release, bytes, NULL};
    weft_op_t op = {.done = on_sent, .arg = sending};
    weft_status_t st = weft_am_send(client->ep, REDIS_REPLY_ID, head, sizeof *head,
                                    &(weft_iov_t){(void *)value, len}, len ? 1 : 0, &op);
    if (st == WEFT_IN_PROGRESS) {
        (void)client_hold(client, sending->size);
        return true;
    }
    add_spare(sending);
    if (st < 0) client_close(client);
    return false;
}

void reply_status(struct client *client, uint32_t number, weft_status_t status) {
    const struct redis_reply head = {.number = number, .status = status};
    (void)send_reply(client, &head, NULL, 0, NULL, NULL);
}

bool reply_value(struct client *client, uint32_t number, const void *value, size_t len,
                 reply_release_fn release, void *bytes) {
    const struct redis_reply head = {.number = number, .len = len};
    return send_reply(client, &head, value, len, release, bytes);
}

void reply_lease(struct client *client, const struct redis_reply *head, const void *packed,
                 size_t len) {
    char *copy = malloc(len);
    if (!copy) {
        reply_status(client, head->number, WEFT_ERR_NO_MEMORY);
        return;
    }
    memcpy(copy, packed, len);
    if (!send_reply(client, head, copy, len, free, copy)) free(copy);
}
