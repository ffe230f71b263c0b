/* The handshake and the end of a conversation over a window. Pure: a plain struct that the
 * explorer copies. */
#ifndef WEFT_TRANSPORTS_RELIABLE_WINDOW_CONN_H
#define WEFT_TRANSPORTS_RELIABLE_WINDOW_CONN_H

#include "window_wire.h"
#include <fsm/fsm.h>

#include "window_conn.fsm"
#define FSM_NAME   conn
#define FSM_PREFIX CONN
#define FSM_SETS   CONN_SETS
#include <fsm/declare.h>

/* The state of window_conn.fsm. A known tag is never 0. */
struct window_conn {
    struct fsm fsm;
    uint32_t my_tag, peer_tag; /* peer_tag 0: unknown */
    uint32_t received_tag;     /* in the handshake frame of the event */
    uint32_t echo_tag;         /* for an ECHO in reply to the event */
};

/* The event of a frame, or CONN_NO_EVENT. Every numbered frame is PROOF. */
enum { CONN_NO_EVENT = -1 };
int weft__conn_recv(struct window_conn *c, const struct window_frame *f);

#endif
