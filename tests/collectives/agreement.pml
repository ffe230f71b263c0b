/*
 * The agreement of collectives/agreement.c, for spin: N members, of which up to DEATHS die, each at
 * any moment, also between two messages of one step. Messages of different members overtake each
 * other. A member learns of a death at any time after it, and hears nothing of the dead one from
 * then on.
 *
 * Proved: all that decide, decide the same; and nobody that lives waits for ever. With a fault
 * (FORGET_HELD, HASTY, FORGET_OTHERS) one of the two fails.
 */
#ifndef N
#define N 3
#endif
#ifndef DEATHS
#define DEATHS 2
#endif
#define HAS(bits, r) ((bits) >> (r) & 1)
#define BIT(r)       (1 << (r))
#define ALL          (BIT(N) - 1)

mtype = { contribute, propose, confirm, decide };

/* kind, ballot, value, lost members, own word */
chan wire[N * N] = [5] of { mtype, byte, byte, byte, byte };
#define TO(from, to) wire[(from) * N + (to)]

byte dead;
byte chosen = 255; /* what the first that decided has */
byte decided;      /* members */

proctype member(byte me) {
    byte lost, came, held, ballot, value, word, proposed, told, j, b, v, l, w, first, todo, moved, announced;
    mtype todo_kind;
    byte own = ALL & ~BIT(me); /* so the value shows whose words are in it */
    word = own;
    came = BIT(me);

again:
    if
    :: HAS(dead, me) -> goto gone
    :: else
    fi;
    /* One message of a broadcast at a time: the member may die between them. */
    if
    :: todo != 0 -> atomic {
        j = 0;
        do
        :: !HAS(todo, j) -> j++
        :: else -> break
        od;
        todo = todo & ~BIT(j);
        TO(me, j) ! todo_kind, ballot, value, lost, own
       }
       goto again
    :: else
    fi;
    atomic {
        first = 0;
        moved = 0;
        do
        :: HAS(lost, first) -> first++
        :: else -> break
        od;
        if
#ifndef FORGET_OTHERS
        :: HAS(decided, me) && first != me && told != first + 1 ->
            moved = 1;
            told = first + 1;
            TO(me, first) ! decide, ballot, value, lost, own
        :: HAS(decided, me) && first == me && !announced ->
            moved = 1;
            announced = 1;
            todo = ALL & ~BIT(me);
            todo_kind = decide
#endif
        :: !HAS(decided, me) && first != me && told != first + 1 ->
            moved = 1;
            told = first + 1;
            TO(me, first) ! contribute, ballot, value, lost, own
        :: !HAS(decided, me) && first == me && !proposed && (came | lost) == ALL ->
#ifndef FORGET_HELD
            if
            :: ballot == 0 -> value = word
            :: else
            fi;
#else
            value = word;
#endif
            moved = 1;
            ballot = me + 1;
            proposed = 1;
            held = BIT(me);
            todo = ALL & ~BIT(me) & ~lost;
            todo_kind = propose
        :: !HAS(decided, me) && first == me && proposed &&
#ifndef HASTY
           (held | lost) == ALL ->
#else
           held != BIT(me) ->
#endif
            moved = 1;
            assert(chosen == 255 || chosen == value);
            chosen = value;
            decided = decided | BIT(me);
            announced = 1;
            todo = ALL & ~BIT(me);
            todo_kind = decide
        :: else
        fi
    }
    if
    :: moved -> goto again
    :: else
    fi;
end:
    if
    :: atomic { TO(0, me) ? contribute, b, v, l, w -> j = 0; goto contributed }
    :: atomic { TO(1, me) ? contribute, b, v, l, w -> j = 1; goto contributed }
    :: atomic { TO(2, me) ? contribute, b, v, l, w -> j = 2; goto contributed }
    :: atomic { TO(0, me) ? propose, b, v, l, w -> j = 0; goto proposal }
    :: atomic { TO(1, me) ? propose, b, v, l, w -> j = 1; goto proposal }
    :: atomic { TO(2, me) ? propose, b, v, l, w -> j = 2; goto proposal }
    :: atomic { TO(0, me) ? confirm, _, _, _, _ -> held = held | BIT(0) }
    :: atomic { TO(1, me) ? confirm, _, _, _, _ -> held = held | BIT(1) }
    :: atomic { TO(2, me) ? confirm, _, _, _, _ -> held = held | BIT(2) }
    :: atomic { TO(0, me) ? decide, b, v, _, _ -> goto decision }
    :: atomic { TO(1, me) ? decide, b, v, _, _ -> goto decision }
    :: atomic { TO(2, me) ? decide, b, v, _, _ -> goto decision }
    :: atomic { HAS(dead & ~lost, 0) -> j = 0; goto learn }
    :: atomic { HAS(dead & ~lost, 1) -> j = 1; goto learn }
    :: atomic { HAS(dead & ~lost, 2) -> j = 2; goto learn }
    :: HAS(dead, me) -> goto gone
    fi;
    goto again;

contributed:
    atomic {
        if
        :: HAS(decided, me) ->
            TO(me, j) ! decide, ballot, value, lost, own
        :: else ->
            if
            :: b > ballot -> ballot = b; value = v
            :: else
            fi;
            lost = lost | (l & ~BIT(me));
            came = came | BIT(j);
            word = word & w
        fi
    }
    goto again;

proposal:
    atomic {
        if
        :: HAS(decided, me) -> TO(me, j) ! decide, ballot, value, lost, own
        :: !HAS(decided, me) && (proposed || HAS(lost, j))
        :: else ->
            lost = lost | (l & ~BIT(me));
            ballot = b;
            value = v;
            TO(me, j) ! confirm, b, v, lost, own
        fi
    }
    goto again;

decision:
    atomic {
        if
        :: HAS(decided, me)
        :: else ->
            ballot = b;
            value = v;
            assert(chosen == 255 || chosen == v);
            chosen = v;
            decided = decided | BIT(me)
        fi
    }
    goto again;

learn:
    atomic {
        lost = lost | BIT(j);
        do
        :: nempty(TO(j, me)) -> TO(j, me) ? _, _, _, _, _
        :: empty(TO(j, me)) -> break
        od
    }
    goto again;

gone:
    /* What is sent to it is lost. */
end_gone:
    do
    :: TO(0, me) ? _, _, _, _, _
    :: TO(1, me) ? _, _, _, _, _
    :: TO(2, me) ? _, _, _, _, _
    od
}

/* Up to DEATHS members die, whenever it has its turn. */
proctype fate() {
    byte deaths;
    do
    :: deaths < DEATHS -> deaths++;
        if
        :: dead = dead | BIT(0)
        :: dead = dead | BIT(1)
        :: dead = dead | BIT(2)
        fi
    :: break
    od
}

init {
    atomic {
        byte i;
        run fate();
        for (i : 0 .. N - 1) {
            run member(i)
        }
    }
    /* Nothing moves any more: all that live have decided. */
    timeout -> assert((decided | dead) == ALL)
}
