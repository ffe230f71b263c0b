/* The machines of this room, with the plain data that their actions read and write. */
#ifndef WEFT_COLLECTIVES_MACHINES_H
#define WEFT_COLLECTIVES_MACHINES_H

#include <fsm/fsm.h>
#include <weft/base.h>

#include "team.fsm"
#define FSM_NAME   team
#define FSM_PREFIX TEAM
#define FSM_SETS   TEAM_SETS
#include <fsm/declare.h>

struct team_core {
    struct fsm fsm;
    uint32_t notified; /* how often on_ready was asked for */
};

#include "member.fsm"
#define FSM_NAME   member
#define FSM_PREFIX MEMBER
#define FSM_SETS   MEMBER_SETS
#include <fsm/declare.h>

struct member_core {
    struct fsm fsm;
};

#include "collective.fsm"
#define FSM_NAME   collective
#define FSM_PREFIX COLL
#define FSM_SETS   COLL_SETS
#include <fsm/declare.h>

struct collective_core {
    struct fsm fsm;
};

#include "agreement.fsm"
#define FSM_NAME   agreement
#define FSM_PREFIX AGREE
#define FSM_SETS   AGREE_SETS
#include <fsm/declare.h>

struct agreement_core {
    struct fsm fsm;
    uint32_t notified; /* how often the outcome was reported */
};

#include "join.fsm"
#define FSM_NAME   join
#define FSM_PREFIX JOIN
#define FSM_SETS   JOIN_SETS
#include <fsm/declare.h>

struct join_core {
    struct fsm fsm;
};

#include "joiner.fsm"
#define FSM_NAME   joiner
#define FSM_PREFIX JOINER
#define FSM_SETS   JOINER_SETS
#include <fsm/declare.h>

struct joiner_core {
    struct fsm fsm;
};

#endif
