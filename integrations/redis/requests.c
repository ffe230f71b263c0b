/* Requests are checked, and served in their order. */
#include "requests.h"

#include "commands.h"
#include "gets.h"
#include "limits.h"
#include "replies.h"
#include <stdlib.h>
#include <string.h>

static struct {
    struct leases *leases;
    bool busy;
    unsigned long long n;
} requests;

void requests_set_busy(bool busy) {
    requests.busy = busy;
}

void requests_set_leases(struct leases *leases) {
    requests.leases = leases;
}

unsigned long long requests_count(void) {
    return requests.n;
}

/* ---- serving --------------------------------------------------------------------------------- */

/* A worker that closes has no leases any more, but its clients' requests still come. The key is
 * copied as in gets_add: it must not change between the read of its value and the lease. */
static void serve_lease(struct client *client, const struct redis_request *head,
                        const char *bytes) {
    size_t key_len = head->key_len, len = 0, packed_len = WEFT_RKEY_MAX;
    struct redis_call_reply *found = NULL;
    struct redis_reply answer = {.number = head->number};
    char packed[WEFT_RKEY_MAX], *key = malloc(key_len + 1);
    if (!requests.leases || !key) {
        reply_status(client, head->number, key ? WEFT_ERR_CLOSED : WEFT_ERR_NO_MEMORY);
        free(key);
        return;
    }
    if (key_len) memcpy(key, bytes, key_len);
    const char *value = command_get(key, key_len, &found, &len);
    answer.status = command_no_value(found);
    answer.len = len;
    if (!value) commands_write_out();
    if (value && len == 0) answer.status = WEFT_OK;
    if (value && len)
        answer.status = leases_give(requests.leases, key, key_len, value, len, &answer.address,
                                    packed, &packed_len, limits_lease_room());
    if (found) redis.FreeCallReply(found);
    free(key);
    if (answer.address)
        reply_lease(client, &answer, packed, packed_len);
    else
        reply_status(client, head->number, answer.status);
}

static bool is_well_formed(const struct redis_request *head, size_t len) {
    size_t key_len = head->key_len;
    return key_len <= len && key_len <= REDIS_KEY_MOST && len - key_len <= REDIS_VALUE_MOST &&
           head->what < REDIS_N_WHAT && (head->what == REDIS_SET || len == key_len);
}

/* WEFT_OK: it may be served. */
static weft_status_t check(const struct redis_request *head, size_t len) {
    if (head->version != REDIS_VERSION) return WEFT_ERR_VERSION;
    if (!is_well_formed(head, len)) return WEFT_ERR_PROTOCOL;
    bool writes = head->what == REDIS_SET || head->what == REDIS_DELETE;
    return requests.busy || (writes && redis.AvoidReplicaTraffic()) ? WEFT_ERR_BUSY : WEFT_OK;
}

/* `bytes` are the key and the value. */
static void serve(struct client *client, const struct redis_request *head, const char *bytes,
                  size_t len) {
    requests.n++;
    uint32_t number = head->number;
    size_t key_len = head->key_len;
    weft_status_t st = check(head, len);
    if (st < 0) {
        reply_status(client, number, st);
        return;
    }
    if (head->what != REDIS_GET) gets_serve();
    switch ((enum redis_what)head->what) {
    case REDIS_GET: gets_add(client, number, bytes, key_len); break;
    case REDIS_SET:
        st = command_set(bytes, key_len, bytes + key_len, len - key_len);
        reply_status(client, number, st);
        break;
    case REDIS_DELETE: reply_status(client, number, command_delete(bytes, key_len)); break;
    case REDIS_LEASE: serve_lease(client, head, bytes); break;
    case REDIS_N_WHAT: break;
    }
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* A request whose payload is being fetched, or that came behind such a one of its client. */
struct waiting {
    struct client *client; /* NULL: gone, and its list */
    weft_status_t status;  /* of the payload; IN_PROGRESS: it is being fetched */
    struct redis_request head;
    struct waiting *next; /* newer */
    size_t len;
    char bytes[];
};

static size_t size_of(size_t len) {
    return sizeof(struct waiting) + len;
}

/* Those that are here, up to one that is not. Serving one may begin to close the client. */
static void serve_waiting(struct client *client) {
    for (struct waiting *each; (each = client->oldest) && each->status != WEFT_IN_PROGRESS;) {
        client->oldest = each->next;
        client_let_go(client, size_of(each->len));
        if (each->status == WEFT_OK)
            serve(client, &each->head, each->bytes, each->len);
        else
            reply_status(client, each->head.number, each->status);
        free(each);
    }
}

static void on_fetched(weft_status_t status, void *arg) {
    struct waiting *fetched = arg;
    fetched->status = status;
    if (fetched->client)
        serve_waiting(fetched->client);
    else
        free(fetched);
}

/* NULL: the client has a reply that says why, or is being closed. */
static struct waiting *add_waiting(struct client *client, const struct redis_request *head,
                                   size_t len) {
    if (len > (size_t)REDIS_KEY_MOST + REDIS_VALUE_MOST) {
        reply_status(client, head->number, WEFT_ERR_TOO_BIG);
        return NULL;
    }
    struct waiting *added = client_hold(client, size_of(len)) ? malloc(size_of(len)) : NULL;
    if (!added) {
        client_let_go(client, size_of(len));
        reply_status(client, head->number, WEFT_ERR_NO_MEMORY);
        return NULL;
    }
    *added = (struct waiting){client, WEFT_IN_PROGRESS, *head, NULL, len};
    *(client->oldest ? &client->newest->next : &client->oldest) = added;
    client->newest = added;
    return added;
}

/* A payload that is not fetched is refused. */
static void wait_for_payload(struct client *client, weft_am_t *am,
                             const struct redis_request *head) {
    struct waiting *added = add_waiting(client, head, am->len);
    if (!added) return;
    if (am->data) {
        memcpy(added->bytes, am->data, am->len);
        added->status = WEFT_OK;
        return;
    }
    weft_op_t op = {.done = on_fetched, .arg = added};
    weft_status_t st = weft_am_recv(am, &(weft_iov_t){added->bytes, am->len}, 1, &op);
    if (st != WEFT_IN_PROGRESS) on_fetched(st, added);
}

void requests_on_message(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct redis_request head;
    if (!ep || am->header_len != sizeof head) return;
    struct client *client = client_of(ep);
    if (!client) return;
    memcpy(&head, am->header, sizeof head);
    if (am->data && !client->oldest)
        serve(client, &head, am->data, am->len);
    else
        wait_for_payload(client, am, &head);
}

/* Those whose payload is being fetched are freed when it is here. */
void requests_forget(struct client *client) {
    for (struct waiting *each; (each = client->oldest) != NULL;) {
        client->oldest = each->next;
        each->client = NULL;
        if (each->status != WEFT_IN_PROGRESS) free(each);
    }
    gets_forget(client);
}
