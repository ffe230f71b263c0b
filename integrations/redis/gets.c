/* GETs are gathered with copies of their keys, and served together. */
#include "gets.h"

#include "commands.h"
#include "replies.h"
#include "sizes.h"
#include <stdlib.h>
#include <string.h>

enum { MOST = 16, KEYS_ROOM = 4096 };
enum { SHORT_MOST = 64 << 10 }; /* bytes of a value that may share a reply */

static struct {
    struct get {
        struct client *client; /* NULL: it is gone */
        uint32_t number, key_len;
        const char *key;
    } of[MOST];
    unsigned n, of_turn, of_last_turn;
    bool has_long; /* one of them may be */
    bool waits_no_more;
    size_t used;
    char keys[KEYS_ROOM];
} gets = {.of_last_turn = 1};

/* ---- one alone: its value lies in the reply of the server, until it has left ----------------- */

static void free_reply(void *reply) {
    redis.FreeCallReply(reply);
}

static void serve_one(struct client *client, uint32_t number, const char *key, size_t key_len) {
    struct redis_call_reply *reply = NULL;
    size_t len = 0;
    const char *value = command_get(key, key_len, &reply, &len);
    if (reply) sizes_note(key, key_len, len <= SHORT_MOST);
    if (value && reply_value(client, number, value, len, free_reply, reply)) return;
    if (!value) {
        commands_write_out();
        reply_status(client, number, command_no_value(reply));
    }
    if (reply) redis.FreeCallReply(reply);
}

/* ---- several: the reply of the server is freed when the last value has left ------------------ */

struct values {
    struct redis_call_reply *reply;
    unsigned users;
};

static void release(void *arg) {
    struct values *values = arg;
    if (--values->users > 0) return;
    redis.FreeCallReply(values->reply);
    free(values);
}

/* NULL: the server refuses it. In a cluster the keys of one MGET have to be of one slot. */
static struct values *call_mget(void) {
    struct redis_string *keys[MOST];
    for (unsigned i = 0; i < gets.n; i++)
        keys[i] = redis.CreateString(NULL, gets.of[i].key, gets.of[i].key_len);
    struct redis_call_reply *reply = command_mget(keys, gets.n);
    for (unsigned i = 0; i < gets.n; i++) redis.FreeString(NULL, keys[i]);
    struct values *values = reply ? malloc(sizeof *values) : NULL;
    if (values) *values = (struct values){.reply = reply, .users = 1};
    if (reply && !values) redis.FreeCallReply(reply);
    return values;
}

static void reply_to_all(struct values *values) {
    bool has_missed = false;
    for (unsigned i = 0; i < gets.n; i++) {
        const struct get *get = &gets.of[i];
        struct redis_call_reply *found = redis.CallReplyArrayElement(values->reply, i);
        size_t len = 0;
        bool is_value = found && redis.CallReplyType(found) == REDIS_REPLY_STRING;
        const char *value = is_value ? redis.CallReplyStringPtr(found, &len) : NULL;
        sizes_note(get->key, get->key_len, len <= SHORT_MOST);
        has_missed = has_missed || !value;
        if (!get->client) continue;
        if (!value)
            reply_status(get->client, get->number, WEFT_ERR_NOT_FOUND);
        else if (reply_value(get->client, get->number, value, len, release, values))
            values->users++;
    }
    if (has_missed) commands_write_out();
    release(values);
}

void gets_serve(void) {
    if (gets.n == 0) return;
    struct values *values = gets.n > 1 ? call_mget() : NULL;
    if (values) {
        reply_to_all(values);
    } else {
        for (struct get *get = gets.of; get < gets.of + gets.n; get++)
            if (get->client) serve_one(get->client, get->number, get->key, get->key_len);
    }
    gets.n = 0;
    gets.has_long = false;
    gets.used = 0;
}

/* ---- the turn -------------------------------------------------------------------------------- */

bool gets_end_turn(void) {
    bool has_replies = gets.n > 0;
    gets_serve();
    if (gets.of_turn) gets.of_last_turn = gets.of_turn;
    gets.of_turn = 0;
    return has_replies;
}

/* A client that shares memory with the server may change `bytes` at any time, so the key is copied
 * before it is looked at. */
void gets_add(struct client *client, uint32_t number, const char *bytes, size_t len) {
    if (len > KEYS_ROOM - gets.used) gets_serve();
    if (gets.waits_no_more || len > KEYS_ROOM) {
        serve_one(client, number, bytes, len);
        return;
    }
    char *key = gets.keys + gets.used;
    if (len) memcpy(key, bytes, len);
    bool may_be_long = !sizes_is_short(key, len);
    if (may_be_long && gets.has_long) {
        gets_serve(); /* which may have read this key */
        key = memmove(gets.keys, key, len);
        may_be_long = !sizes_is_short(key, len);
    }
    if (client->closing) return; /* when those before were served, too much waited for it */
    gets.used += len;
    gets.has_long |= may_be_long;
    gets.of[gets.n++] =
        (struct get){.client = client, .number = number, .key_len = (uint32_t)len, .key = key};
    if (++gets.of_turn == gets.of_last_turn || gets.n == MOST) gets_serve();
}

void gets_forget(const struct client *client) {
    for (struct get *get = gets.of; get < gets.of + gets.n; get++)
        if (get->client == client) get->client = NULL;
}

void gets_wait_no_more(void) {
    gets.waits_no_more = true;
}
