/* The limits, by CONFIG GET. */
#include "limits.h"

#include "redis_module.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HARD = 1 << 30 };

struct output_limits output_limits = {.hard = HARD};
static bool known;
static size_t memory; /* maxmemory; 0: none */

static void read_setting(const char *name, char *text, size_t room) {
    struct redis_call_reply *reply = redis.Call(redis.ctx, "CONFIG", "cc", "GET", name);
    bool found = reply && redis.CallReplyType(reply) == REDIS_REPLY_ARRAY &&
                 redis.CallReplyLength(reply) == 2;
    struct redis_call_reply *value = found ? redis.CallReplyArrayElement(reply, 1) : NULL;
    size_t len = 0;
    const char *at = value ? redis.CallReplyStringPtr(value, &len) : NULL;
    snprintf(text, room, "%.*s", (int)(at ? len : 0), at ? at : "");
    if (reply) redis.FreeCallReply(reply);
}

/* Without CONFIG, which may be renamed, there are none but the module's own. */
void limits_refresh(void) {
    struct output_limits *limits = &output_limits;
    char text[512];
    if (known) return;
    read_setting("client-output-buffer-limit", text, sizeof text);
    const char *normal = strstr(text, "normal ");
    if (!normal || sscanf(normal, "normal %zu %zu %zu", &limits->hard, &limits->soft,
                          &limits->soft_seconds) != 3)
        limits->hard = limits->soft = 0;
    if (!limits->hard) limits->hard = HARD;
    read_setting("maxmemory", text, sizeof text);
    memory = strtoull(text, NULL, 10);
    known = true;
}

void limits_forget(void) {
    known = false;
}

size_t limits_lease_room(void) {
    float used = memory ? redis.GetUsedMemoryRatio() : 0;
    if (!memory) return SIZE_MAX;
    return used >= 1 ? 0 : (size_t)((1 - (double)used) * (double)memory);
}
