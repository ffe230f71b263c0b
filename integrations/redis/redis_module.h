/*
 * The functions of Redis's module interface (redis.io/docs/reference/modules/modules-api-ref) that
 * the module calls, found by name when it is loaded: RedisModule_Call is redis.Call. Debian has no
 * package with Redis's own header.
 */
#ifndef WEFT_REDIS_MODULE_H
#define WEFT_REDIS_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct redis_context;
struct redis_string;
struct redis_call_reply;

enum { REDIS_OK = 0, REDIS_ERR = 1, REDIS_API_VERSION = 1 };
enum { REDIS_READABLE = 1 };
enum {
    REDIS_REPLY_STRING = 0,
    REDIS_REPLY_ERROR = 1,
    REDIS_REPLY_INTEGER = 2,
    REDIS_REPLY_ARRAY = 3,
    REDIS_REPLY_NULL = 4
};
/* Classes of events on keys: all that change or remove a string, or put another type in its place
 * (SORT … STORE, SUNIONSTORE, ZUNIONSTORE). */
enum {
    REDIS_NOTIFY_GENERIC = 1 << 2,
    REDIS_NOTIFY_STRING = 1 << 3,
    REDIS_NOTIFY_LIST = 1 << 4,
    REDIS_NOTIFY_SET = 1 << 5,
    REDIS_NOTIFY_ZSET = 1 << 7,
    REDIS_NOTIFY_EXPIRED = 1 << 8,
    REDIS_NOTIFY_EVICTED = 1 << 9
};

/* What the server is in the middle of: a script, a transaction, the load of its data. */
enum { REDIS_IN_SCRIPT = 1 << 0, REDIS_IN_MULTI = 1 << 1, REDIS_IN_LOAD = 1 << 13 };

/* An event of the server, of these kinds: they change keys without an event for each, but for the
 * last, after which CONFIG GET may give other values. */
struct redis_event {
    uint64_t id, version;
};
enum {
    REDIS_EVENT_VERSION = 1,
    REDIS_EVENT_FLUSH = 2,
    REDIS_EVENT_LOAD = 3,
    REDIS_EVENT_SWAP = 11,
    REDIS_EVENT_ASYNC_LOAD = 14,
    REDIS_EVENT_CONFIG = 16
};
typedef void (*redis_event_fn)(struct redis_context *ctx, struct redis_event event, uint64_t part,
                               void *data);

typedef int (*redis_command_fn)(struct redis_context *ctx, struct redis_string **argv, int argc);

#define REDIS_FUNCTIONS(F)                                                                         \
    F(int, SetModuleAttribs, (struct redis_context *, const char *name, int version, int api))     \
    F(int, IsModuleNameBusy, (const char *name))                                                   \
    F(int, CreateCommand,                                                                          \
      (struct redis_context *, const char *name, redis_command_fn, const char *flags, int, int,    \
       int))                                                                                       \
    F(int, EventLoopAdd, (int fd, int mask, void (*)(int fd, void *user, int mask), void *user))   \
    F(int, EventLoopDel, (int fd, int mask))                                                       \
    F(struct redis_context *, GetDetachedThreadSafeContext, (struct redis_context *))              \
    F(void, FreeThreadSafeContext, (struct redis_context *))                                       \
    F(int, SubscribeToKeyspaceEvents,                                                              \
      (struct redis_context *, int types,                                                          \
       int (*)(struct redis_context *, int type, const char *event, struct redis_string *key)))    \
    F(int, SubscribeToServerEvent,                                                                 \
      (struct redis_context *, struct redis_event event, redis_event_fn))                          \
    F(int, GetContextFlags, (struct redis_context *))                                              \
    F(int, AvoidReplicaTraffic, (void))                                                            \
    F(float, GetUsedMemoryRatio, (void)) /* of maxmemory; 0: it is not set */                      \
    F(struct redis_call_reply *, Call,                                                             \
      (struct redis_context *, const char *command, const char *format, ...))                      \
    F(int, CallReplyType, (struct redis_call_reply *))                                             \
    F(const char *, CallReplyStringPtr, (struct redis_call_reply *, size_t * len))                 \
    F(long long, CallReplyInteger, (struct redis_call_reply *))                                    \
    F(size_t, CallReplyLength, (struct redis_call_reply *))                                        \
    F(struct redis_call_reply *, CallReplyArrayElement, (struct redis_call_reply *, size_t at))    \
    F(void, FreeCallReply, (struct redis_call_reply *))                                            \
    F(struct redis_string *, CreateString, (struct redis_context *, const char *text, size_t len)) \
    F(void, FreeString, (struct redis_context *, struct redis_string *))                           \
    F(const char *, StringPtrLen, (const struct redis_string *, size_t *len))                      \
    F(int, ReplyWithCString, (struct redis_context *, const char *text))                           \
    F(void, Log, (struct redis_context *, const char *level, const char *format, ...))

#define REDIS_POINTER(type, name, parameters) type(*name) parameters;
struct redis {
    struct redis_context *ctx; /* for calls outside of a command; NULL while there is none */
    REDIS_FUNCTIONS(REDIS_POINTER)
};
extern struct redis redis;

/* Finds all of them by the context that the server loads the module with. */
bool redis_find_functions(struct redis_context *ctx);

#endif
