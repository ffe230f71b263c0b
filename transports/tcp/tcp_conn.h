/* The machine of a connection (tcp_conn.fsm): its enums and its plain data. */
#ifndef WEFT_TRANSPORTS_TCP_TCP_CONN_H
#define WEFT_TRANSPORTS_TCP_TCP_CONN_H

#include "tcp_conn.fsm"
#define FSM_NAME   tcp_conn
#define FSM_PREFIX TCP_CONN
#include <fsm/declare.h>

enum { TCP_NOTIFIED_UP = 1, TCP_NOTIFIED_DOWN = 2, TCP_NOTIFIED_CLOSED = 4 };

struct tcp_conn {
    struct fsm fsm;
    uint8_t notified; /* what was reported to the owner so far, for the invariants */
};

#endif
