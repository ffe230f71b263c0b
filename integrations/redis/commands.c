/* Calls outside of a command. */
#include "commands.h"

/*
 * How commands are called. "!": what they change is written to the log and to replicas. A read that
 * finds a key expired deletes it, and from Redis 7.2 on a read without "!" would drop that. "S":
 * the server refuses what it would refuse a script: a write to a read-only replica, or without
 * enough replicas or a disk that works, and a read of a replica's stale data. "M": and beyond its
 * limit of memory.
 */
#define READ   "!S"
#define REMOVE "!S"
#define WRITE  "!SM"

static int written_command(struct redis_context *ctx, struct redis_string **argv, int argc) {
    return redis.ReplyWithCString(ctx, "OK");
}

bool commands_add(struct redis_context *ctx) {
    return redis.CreateCommand(ctx, "weft.written", written_command, "readonly", 0, 0, 0) ==
           REDIS_OK;
}

/* In Redis 7.0, what a call outside of a command writes to the log and to replicas waits for the
 * end of a command of this module; the server ends if it sleeps before. */
void commands_write_out(void) {
    struct redis_call_reply *called = redis.Call(redis.ctx, "weft.written", "!");
    if (called) redis.FreeCallReply(called);
}

const char *command_get(const char *key, size_t key_len, struct redis_call_reply **reply_p,
                        size_t *len_p) {
    *reply_p = redis.Call(redis.ctx, "GET", READ "b", key, key_len);
    if (!*reply_p || redis.CallReplyType(*reply_p) != REDIS_REPLY_STRING) return NULL;
    return redis.CallReplyStringPtr(*reply_p, len_p);
}

weft_status_t command_no_value(const struct redis_call_reply *reply) {
    return reply ? WEFT_ERR_NOT_FOUND : WEFT_ERR_REJECTED;
}

struct redis_call_reply *command_mget(struct redis_string **keys, size_t n) {
    struct redis_call_reply *reply = redis.Call(redis.ctx, "MGET", READ "v", keys, n);
    if (reply && redis.CallReplyType(reply) == REDIS_REPLY_ARRAY &&
        redis.CallReplyLength(reply) == n)
        return reply;
    if (reply) redis.FreeCallReply(reply);
    return NULL;
}

/* Of a command that writes. */
static weft_status_t outcome(struct redis_call_reply *result) {
    commands_write_out();
    if (!result) return WEFT_ERR_REJECTED;
    int type = redis.CallReplyType(result);
    weft_status_t st = type == REDIS_REPLY_ERROR ? WEFT_ERR_REJECTED : WEFT_OK;
    if (type == REDIS_REPLY_INTEGER && redis.CallReplyInteger(result) == 0) st = WEFT_ERR_NOT_FOUND;
    redis.FreeCallReply(result);
    return st;
}

weft_status_t command_set(const char *key, size_t key_len, const char *value, size_t len) {
    return outcome(redis.Call(redis.ctx, "SET", WRITE "bb", key, key_len, value, len));
}

weft_status_t command_delete(const char *key, size_t key_len) {
    return outcome(redis.Call(redis.ctx, "DEL", REMOVE "b", key, key_len));
}
