/*
 * A blocking client of hiredis, for bench/redis:
 *     redis_hiredis HOST:PORT|PATH latency|batch COUNT
 *
 * latency: the median round trip of COUNT GETs of 3 bytes, in µs. batch: GETs a second, in COUNT
 * pipelines of 16.
 */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 16 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void expect_value(redisReply *reply) {
    if (!reply || reply->type != REDIS_REPLY_STRING || reply->len != 3) exit(1);
    freeReplyObject(reply);
}

static double latency(redisContext *redis, size_t count) {
    double *us = calloc(count, sizeof *us);
    if (!us) exit(1);
    for (size_t i = 0; i < count; i++) {
        double begin = now();
        expect_value(redisCommand(redis, "GET %s", "latency"));
        us[i] = (now() - begin) * 1e6;
    }
    qsort(us, count, sizeof *us, by_size);
    double median = us[count / 2];
    free(us);
    return median;
}

static double batch(redisContext *redis, size_t count) {
    double begin = now();
    for (size_t i = 0; i < count; i++) {
        for (int k = 0; k < BATCH; k++) redisAppendCommand(redis, "GET %s", "latency");
        for (int k = 0; k < BATCH; k++) {
            redisReply *reply = NULL;
            if (redisGetReply(redis, (void **)&reply) != REDIS_OK) exit(1);
            expect_value(reply);
        }
    }
    return (double)count * BATCH / (now() - begin);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    char *colon = strrchr(argv[1], ':');
    if (colon) *colon = 0;
    redisContext *redis =
        colon ? redisConnect(argv[1], atoi(colon + 1)) : redisConnectUnix(argv[1]);
    if (!redis || redis->err) return 1;
    freeReplyObject(redisCommand(redis, "SET latency abc"));
    size_t count = (size_t)atoi(argv[3]);
    printf("%.2f\n", strcmp(argv[2], "batch") ? latency(redis, count) : batch(redis, count));
    redisFree(redis);
    return 0;
}
