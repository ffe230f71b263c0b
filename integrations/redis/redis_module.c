/* The server's functions, found by their names. */
#include "redis_module.h"

struct redis redis;

bool redis_find_functions(struct redis_context *ctx) {
    int (*get)(const char *name, void **function);
    *(void **)&get = *(void **)ctx; /* the interface's first word */
#define REDIS_FIND(type, name, parameters) \
    if (get("RedisModule_" #name, (void **)&redis.name) != REDIS_OK) return false;
    REDIS_FUNCTIONS(REDIS_FIND)
    return true;
}
