/* The machine of the exchange at one process. Its port (exchange.c) owns the socket and the
 * buffers. */
#ifndef WEFT_RUNTIME_EXCHANGE_H
#define WEFT_RUNTIME_EXCHANGE_H

#include <fsm/fsm.h>
#include <weft/team.h>

#include "exchange.fsm"
#define FSM_NAME   exchange
#define FSM_PREFIX EXCHANGE
#define FSM_SETS   EXCHANGE_SETS
#include <fsm/declare.h>

struct exchange {
    struct fsm fsm;
    uint32_t round;       /* the last round that began, from 1 */
    uint32_t awaited;     /* the round whose answer is awaited; 0: none */
    weft_status_t status; /* of the round that just ended; in BROKEN the reason */
};

/* The event of an answer. */
enum exchange_event weft__exchange_classify(const struct exchange *x, uint32_t round, bool denied,
                                            bool right_length);

/*
 * An exchange over `fd`, a connected stream socket that it owns from now on, as rank `rank` of
 * `size`. One per process in a program (weft_run_exchange); several in tests. `*exchange_p` lives
 * until weft__run_client_free.
 */
struct run_client;
weft_status_t weft__run_client_create(int fd, uint32_t rank, uint32_t size,
                                      struct run_client **client_p);
const weft_exchange_t *weft__run_client_exchange(struct run_client *client);
/* An exchange is under way. */
bool weft__run_client_is_busy(const struct run_client *client);
void weft__run_client_free(struct run_client *client);

#endif
