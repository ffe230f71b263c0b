/* For fsm/declare.h and fsm/define.h only: names made of FSM_NAME (foo) and FSM_PREFIX (FOO). */
#ifndef WEFT_FSM_MACROS_H
#define WEFT_FSM_MACROS_H

#define FSM_JOIN_(a, b) a##b
#define FSM_JOIN(a, b)  FSM_JOIN_(a, b)
#define FSM_TEXT_(a)    #a
#define FSM_TEXT(a)     FSM_TEXT_(a)
#define FSM_LOW(suffix) FSM_JOIN(FSM_NAME, suffix)
#define FSM_UP(suffix)  FSM_JOIN(FSM_PREFIX, suffix)
#define FSM_MACHINE     FSM_JOIN(weft__, FSM_LOW(_machine))

#define FSM_NOTHING(...)
#define FSM_ENUM_STATE(s)             FSM_UP(_##s),
#define FSM_ENUM_EVENT(e)             FSM_UP(_EV_##e),
#define FSM_ENUM_EFFECT(f)            FSM_UP(_FX_##f),
#define FSM_ENUM_ACTION(a)            FSM_UP(_ACT_##a),
#define FSM_ENUM_ROW(e, ...)          FSM_UP(_ROW_##e),
#define FSM_ENUM_COLUMN(s)            FSM_UP(_COLUMN_##s),
#define FSM_ENUM_COLUMNS(...)         FSM_EACH(FSM_ENUM_COLUMN, __VA_ARGS__)
#define FSM_ENUM_DEAD(e, s, why)      FSM_FOR(FSM_ENUM_DEAD_CELL, e, why, FSM_BARE(s))
#define FSM_ENUM_DEAD_CELL(e, why, s) FSM_UP(_DEAD_##e##_##s),
#define FSM_NAME_OF(x)                #x,

#define FSM_DECLARE_ACTION(a) static void FSM_LOW(_act_##a)(struct fsm * m);
#define FSM_ACTION_FN(a)      FSM_LOW(_act_##a),

#define FSM_ROW_CELLS(e, ...) [FSM_UP(_EV_##e)] = {__VA_ARGS__},
#define FSM_ROW_WIDTH(e, ...)                                       \
    _Static_assert(sizeof((struct fsm_cell[]){__VA_ARGS__}) ==      \
                       FSM_UP(_N_STATES) * sizeof(struct fsm_cell), \
                   "row " #e ": one cell per state");
#define FSM_COLUMN_ORDER(s)                                       \
    _Static_assert((int)FSM_UP(_COLUMN_##s) == (int)FSM_UP(_##s), \
                   "column " #s " has the place of the state");
#define FSM_DEAD_CELLS(e, s, why) FSM_FOR(FSM_DEAD_CELL, e, why, FSM_BARE(s))
#define FSM_DEAD_CELL(e, why, s)  {FSM_UP(_EV_##e), FSM_UP(_##s), why},

/* A set of states and its predicate. Comparisons, since the compiler knows best which test of a
 * set is cheapest. */
#define FSM_PREDICATE(name, ...)                                                       \
    static inline __attribute__((unused)) bool FSM_LOW(_##name)(const struct fsm *m) { \
        return FSM_EACH(FSM_IS_STATE, __VA_ARGS__) false;                              \
    }
#define FSM_IS_STATE(s) m->state == FSM_UP(_##s) ||

/* Bits: of the events of a kind; of the actions used by a row; of the events whose row has a
 * marked cell. */
#define FSM_EVENT_BIT(e)   | (UINT64_C(1) << FSM_UP(_EV_##e))
#define FSM_ROW_OR(e, ...) | FSM_OR(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
#define FSM_ROW_ANY(e, ...)                                                                 \
    | ((uint64_t)(FSM_OR(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) != 0) \
       << FSM_UP(_EV_##e))
#define FSM_OR(...) FSM_OR_(__VA_ARGS__)
#define FSM_OR_(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ...) \
    ((a) | (b) | (c) | (d) | (e) | (f) | (g) | (h) | (i) | (j) | (k) | (l) | (m) | (n) | (o) | (p))

/* FSM_BARE: A is A, and (A, B) is A, B. The name that is pasted away is what FSM_LIST leaves in
 * front of both. */
#define FSM_BARE(s)    FSM_DROP(FSM_LIST s)
#define FSM_LIST(...)  FSM_LIST __VA_ARGS__
#define FSM_DROP(...)  FSM_DROP_(__VA_ARGS__)
#define FSM_DROP_(...) FSM_NO_##__VA_ARGS__
#define FSM_NO_FSM_LIST

/* FSM_EACH(f, a, b, …): f(a) f(b) …, up to 16. */
#define FSM_EACH(f, ...)                                                                    \
    FSM_JOIN(FSM_EACH_,                                                                     \
             FSM_COUNT(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1)) \
    (f, __VA_ARGS__)
#define FSM_COUNT(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, count, ...) count
#define FSM_EACH_1(f, a)                                                      f(a)
#define FSM_EACH_2(f, a, ...)                                                 f(a) FSM_EACH_1(f, __VA_ARGS__)
#define FSM_EACH_3(f, a, ...)                                                 f(a) FSM_EACH_2(f, __VA_ARGS__)
#define FSM_EACH_4(f, a, ...)                                                 f(a) FSM_EACH_3(f, __VA_ARGS__)
#define FSM_EACH_5(f, a, ...)                                                 f(a) FSM_EACH_4(f, __VA_ARGS__)
#define FSM_EACH_6(f, a, ...)                                                 f(a) FSM_EACH_5(f, __VA_ARGS__)
#define FSM_EACH_7(f, a, ...)                                                 f(a) FSM_EACH_6(f, __VA_ARGS__)
#define FSM_EACH_8(f, a, ...)                                                 f(a) FSM_EACH_7(f, __VA_ARGS__)
#define FSM_EACH_9(f, a, ...)                                                 f(a) FSM_EACH_8(f, __VA_ARGS__)
#define FSM_EACH_10(f, a, ...)                                                f(a) FSM_EACH_9(f, __VA_ARGS__)
#define FSM_EACH_11(f, a, ...)                                                f(a) FSM_EACH_10(f, __VA_ARGS__)
#define FSM_EACH_12(f, a, ...)                                                f(a) FSM_EACH_11(f, __VA_ARGS__)
#define FSM_EACH_13(f, a, ...)                                                f(a) FSM_EACH_12(f, __VA_ARGS__)
#define FSM_EACH_14(f, a, ...)                                                f(a) FSM_EACH_13(f, __VA_ARGS__)
#define FSM_EACH_15(f, a, ...)                                                f(a) FSM_EACH_14(f, __VA_ARGS__)
#define FSM_EACH_16(f, a, ...)                                                f(a) FSM_EACH_15(f, __VA_ARGS__)

/* FSM_FOR(f, x, y, a, b, …): f(x, y, a) f(x, y, b) …, up to 16. */
#define FSM_FOR(...) FSM_FOR_(__VA_ARGS__)
#define FSM_FOR_(f, x, y, ...)                                                              \
    FSM_JOIN(FSM_FOR_,                                                                      \
             FSM_COUNT(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1)) \
    (f, x, y, __VA_ARGS__)
#define FSM_FOR_1(f, x, y, a)       f(x, y, a)
#define FSM_FOR_2(f, x, y, a, ...)  f(x, y, a) FSM_FOR_1(f, x, y, __VA_ARGS__)
#define FSM_FOR_3(f, x, y, a, ...)  f(x, y, a) FSM_FOR_2(f, x, y, __VA_ARGS__)
#define FSM_FOR_4(f, x, y, a, ...)  f(x, y, a) FSM_FOR_3(f, x, y, __VA_ARGS__)
#define FSM_FOR_5(f, x, y, a, ...)  f(x, y, a) FSM_FOR_4(f, x, y, __VA_ARGS__)
#define FSM_FOR_6(f, x, y, a, ...)  f(x, y, a) FSM_FOR_5(f, x, y, __VA_ARGS__)
#define FSM_FOR_7(f, x, y, a, ...)  f(x, y, a) FSM_FOR_6(f, x, y, __VA_ARGS__)
#define FSM_FOR_8(f, x, y, a, ...)  f(x, y, a) FSM_FOR_7(f, x, y, __VA_ARGS__)
#define FSM_FOR_9(f, x, y, a, ...)  f(x, y, a) FSM_FOR_8(f, x, y, __VA_ARGS__)
#define FSM_FOR_10(f, x, y, a, ...) f(x, y, a) FSM_FOR_9(f, x, y, __VA_ARGS__)
#define FSM_FOR_11(f, x, y, a, ...) f(x, y, a) FSM_FOR_10(f, x, y, __VA_ARGS__)
#define FSM_FOR_12(f, x, y, a, ...) f(x, y, a) FSM_FOR_11(f, x, y, __VA_ARGS__)
#define FSM_FOR_13(f, x, y, a, ...) f(x, y, a) FSM_FOR_12(f, x, y, __VA_ARGS__)
#define FSM_FOR_14(f, x, y, a, ...) f(x, y, a) FSM_FOR_13(f, x, y, __VA_ARGS__)
#define FSM_FOR_15(f, x, y, a, ...) f(x, y, a) FSM_FOR_14(f, x, y, __VA_ARGS__)
#define FSM_FOR_16(f, x, y, a, ...) f(x, y, a) FSM_FOR_15(f, x, y, __VA_ARGS__)

#endif
