/* Who speaks with whom over a window. Pure: a plain struct that the explorer copies. */
#ifndef WEFT_ENDPOINTS_WINDOW_CONN_H
#define WEFT_ENDPOINTS_WINDOW_CONN_H

#include "window_wire.h"
#include <fsm/fsm.h>

#include "window_conn.fsm"
#define FSM_NAME   conn
#define FSM_PREFIX CONN
#include <fsm/declare.h>

/* All that the machine of window_conn.fsm decides upon. Tags are never 0. */
struct window_conn {
    struct fsm fsm;
    uint32_t my_tag, peer_tag; /* peer_tag 0: not known yet */
    uint32_t heard_tag;        /* of the greeting that an event is about */
    uint32_t echo_tag;         /* for the ECHO that an event may cause */
};

/* The event that a frame is, or CONN_NO_EVENT; numbered frames are PROOF, whatever else they are. */
enum { CONN_NO_EVENT = -1 };
int weft__conn_hear(struct window_conn *c, const struct window_frame *f);

#endif
