/* Who this process is, from the environment that weft-run sets. */
#define _GNU_SOURCE
#include "exchange.h"
#include "wire.h"
#include <errno.h>
#include <pthread.h>
#include <reactor/reactor.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <weft/runtime.h>

static struct run_client *client; /* of the process; lives as long as it */

/* A decimal number of the environment, up to `most`. */
static bool number_run(const char *name, unsigned long most, uint32_t *value_p) {
    const char *text = secure_getenv(name);
    char *end = NULL;
    errno = 0;
    unsigned long value = text && *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;
    if (!end || *end || errno || value > most) {
        weft__log(NULL, WEFT_LOG_ERROR, "runtime", "%s is \"%s\", not a number up to %lu", name,
                  text ? text : "", most);
        return false;
    }
    *value_p = (uint32_t)value;
    return true;
}

static bool is_stream(int fd) {
    int type = 0;
    socklen_t len = sizeof type;
    bool stream = getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_STREAM;
    if (!stream)
        weft__log(NULL, WEFT_LOG_ERROR, "runtime",
                  "WEFT_RUN_FD is %d, which is not a socket of weft-run", fd);
    return stream;
}

static void read_environment(void) {
    uint32_t fd = 0, rank = 0, size = 1;
    bool alone = !secure_getenv("WEFT_RUN_FD") && !secure_getenv("WEFT_RUN_RANK") &&
                 !secure_getenv("WEFT_RUN_SIZE");
    if (!alone) {
        if (!number_run("WEFT_RUN_FD", INT32_MAX, &fd) ||
            !number_run("WEFT_RUN_SIZE", RUN_MAX_RANKS, &size) ||
            !number_run("WEFT_RUN_RANK", RUN_MAX_RANKS, &rank) || !is_stream((int)fd))
            return;
        if (rank >= size) {
            weft__log(NULL, WEFT_LOG_ERROR, "runtime", "WEFT_RUN_RANK is %u of WEFT_RUN_SIZE %u",
                      rank, size);
            return;
        }
    }
    weft_status_t st = weft__run_client_create(alone ? -1 : (int)fd, rank, size, &client);
    if (st < 0)
        weft__log(NULL, WEFT_LOG_ERROR, "runtime", "no exchange: %s", weft_status_sentence(st));
}

/* A checker for leaks looks when the process has ended. A thread may still wait for an exchange. */
static __attribute__((destructor)) void forget_client(void) {
    if (!client || weft__run_client_is_busy(client)) return;
    weft__run_client_free(client);
    client = NULL;
}

const weft_exchange_t *weft_run_exchange(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_environment);
    return client ? weft__run_client_exchange(client) : NULL;
}
