/* A list of clients, which end with their endpoints or with the worker. */
#include "clients.h"

#include "limits.h"
#include "redis_module.h"
#include <stdlib.h>

static struct client *clients;
static struct client without_memory = {.closing = true}; /* of each endpoint that none was for */
static void (*on_closing)(struct client *client);
static unsigned long long closed_for_limit;

void clients_begin(void (*closing)(struct client *client)) {
    on_closing = closing;
}

void clients_end(void) {
    for (struct client *each; (each = clients) != NULL;) {
        clients = each->next;
        free(each);
    }
}

static void on_closed(weft_status_t status, void *arg) {
    struct client *client = arg;
    *client->prev = client->next;
    if (client->next) client->next->prev = client->prev;
    free(client);
}

void client_close(struct client *client) {
    weft_op_t op = {.done = on_closed, .arg = client};
    if (client->closing) return;
    client->closing = true;
    on_closing(client);
    (void)weft_ep_close(client->ep, WEFT_CLOSE_ABORT, &op);
}

void client_on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct client *client = weft_ep_user(ep);
    if (client)
        client_close(client);
    else
        (void)weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL);
}

static struct client *add_client(weft_ep_t *ep) {
    struct client *client = calloc(1, sizeof *client);
    if (!client) {
        weft_ep_set_user(ep, &without_memory);
        (void)weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL);
        return NULL;
    }
    client->ep = ep;
    client->next = clients;
    client->prev = &clients;
    if (client->next) client->next->prev = &client->next;
    clients = client;
    weft_ep_set_user(ep, client);
    (void)weft_ep_on_error(ep, client_on_error, NULL); /* the listener is not all that opens one */
    return client;
}

struct client *client_of(weft_ep_t *ep) {
    struct client *client = weft_ep_user(ep);
    if (!client) return add_client(ep);
    return client->closing ? NULL : client;
}

static bool is_too_much(struct client *client) {
    const struct output_limits *limits = &output_limits;
    if (!limits->soft || client->held <= limits->soft)
        client->over_since = 0;
    else if (!client->over_since)
        client->over_since = time(NULL);
    return client->held > limits->hard ||
           (client->over_since && time(NULL) - client->over_since > (time_t)limits->soft_seconds);
}

bool client_hold(struct client *client, size_t bytes) {
    client->held += bytes;
    if (!is_too_much(client)) return true;
    closed_for_limit++;
    redis.Log(redis.ctx, "warning", "weft: a client is closed, for which %zu bytes wait",
              client->held);
    client_close(client);
    return false;
}

void client_let_go(struct client *client, size_t bytes) {
    client->held -= bytes;
}

unsigned long long clients_closed_for_limit(void) {
    return closed_for_limit;
}
