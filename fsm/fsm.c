/* Steps a machine by its table, traces the steps, and keeps the register of machines. */
#include <assert.h>
#include <fsm/fsm.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

_Thread_local struct fsm_trace *weft__fsm__trace __attribute__((tls_model("initial-exec")));
bool weft__fsm__coverage;

void weft__fsm_act_none(struct fsm *m) {}

static __attribute__((noinline)) void note_hit(const struct fsm *m,
                                               const struct fsm_machine *machine, unsigned event) {
    __atomic_fetch_add(&machine->hits[event * machine->n_states + m->state], 1, __ATOMIC_RELAXED);
}

static inline void note_step(const struct fsm *m, const struct fsm_machine *machine, unsigned event,
                             struct fsm_cell cell) {
    fsm__note(m, machine, event, cell.verb, cell.verb == FSM_DO ? cell.next : m->state);
    if (__builtin_expect(weft__fsm__coverage, false)) note_hit(m, machine, event);
}

/* What happens in a cell that is not DO; `verb` 0 would be a table that define.h did not make. */
static __attribute__((noinline)) void stay(struct fsm *m, unsigned event, enum fsm_verb verb) {
    if (verb == FSM_SKIP) return;
    if (verb == FSM_HOLD)
        m->held |= 1u << event;
    else
        m->port->fail(m, event, verb == FSM_VIOL ? FSM_VIOL : FSM_BUG);
}

/* Held events come back one by one; each that is a DO gives those held again another chance. */
static __attribute__((noinline)) void deliver_held(struct fsm *m) {
    uint32_t again = 0;
    while (m->held) {
        unsigned event = (unsigned)__builtin_ctz(m->held);
        m->held &= m->held - 1;
        const struct fsm_machine *machine = m->port->machine;
        struct fsm_cell cell = machine->cells[event * machine->n_states + m->state];
        note_step(m, machine, event, cell);
        if (cell.verb == FSM_HOLD) {
            again |= 1u << event;
        } else if (cell.verb == FSM_DO) {
            m->held |= again;
            again = 0;
            m->state = cell.next;
            machine->actions[cell.action](m);
            fsm__check_invariants(m, machine);
        } else {
            stay(m, event, cell.verb);
        }
    }
    m->held = again;
}

void weft__fsm_step(struct fsm *m, unsigned event) {
    const struct fsm_machine *machine = m->port->machine;
    assert(event < machine->n_events && m->state < machine->n_states);
    struct fsm_cell cell = machine->cells[event * machine->n_states + m->state];
    note_step(m, machine, event, cell);
    if (__builtin_expect(cell.verb != FSM_DO, false)) return stay(m, event, cell.verb);
    m->state = cell.next;
    machine->actions[cell.action](m);
    fsm__check_invariants(m, machine);
    if (__builtin_expect(m->held != 0, false)) deliver_held(m);
}

/* ---- trace ----------------------------------------------------------------------------------- */

struct text {
    char *at;
    unsigned long room, len;
};

static __attribute__((format(printf, 2, 3))) void put(struct text *out, const char *format, ...) {
    va_list args;
    va_start(args, format);
    unsigned long left = out->len < out->room ? out->room - out->len : 0;
    int n = vsnprintf(left ? out->at + out->len : NULL, left, format, args);
    va_end(args);
    out->len += n > 0 ? (unsigned long)n : 0;
}

static const char *const remarks[] = {" (no cell)",   "",      " (skipped)", " (held)",
                                      " (violation)", " (bug)"};

/* Any thread may print a trace. What is written at that time is no step of its machine. */
static bool is_whole(const struct fsm_trace_step *s) {
    const struct fsm_machine *machine = s->machine;
    return machine && s->event < machine->n_events && s->from < machine->n_states &&
           s->to < machine->n_states && s->verb < sizeof remarks / sizeof *remarks;
}

static void print_step(struct text *out, const struct fsm_trace_step *given) {
    struct fsm_trace_step s;
    memcpy(&s, given, sizeof s); /* what is checked is what is printed */
    if (!is_whole(&s)) return;
    put(out, "%" PRIu64 ".%09u %s#%" PRIu32 " %s: %s", s.at / 1000000000,
        (unsigned)(s.at % 1000000000), s.machine->name, s.id, s.machine->event_name[s.event],
        s.machine->state_name[s.from]);
    if (s.verb == FSM_DO) put(out, " -> %s", s.machine->state_name[s.to]);
    put(out, "%s\n", remarks[s.verb]);
}

unsigned long weft__fsm_trace_print(const struct fsm_trace *t, unsigned most, uint32_t id,
                                    char *buf, unsigned long size) {
    struct text out = {buf, size, 0};
    uint64_t oldest = t->count > FSM_TRACE_STEPS ? t->count - FSM_TRACE_STEPS : 0;
    uint64_t first = t->count;
    for (unsigned found = 0; first > oldest && (most == 0 || found < most); first--)
        found += id == 0 || t->step[(first - 1) % FSM_TRACE_STEPS].id == id;
    if (size) buf[0] = '\0';
    for (uint64_t i = first; i < t->count; i++)
        if (id == 0 || t->step[i % FSM_TRACE_STEPS].id == id)
            print_step(&out, &t->step[i % FSM_TRACE_STEPS]);
    return out.len;
}

/* ---- register -------------------------------------------------------------------------------- */

/* The linker's bounds of section weft_machines, which fsm/define.h fills; weak: there may be
 * none. */
extern const struct fsm_machine *const __start_weft_machines[]
    __attribute__((weak, visibility("hidden")));
extern const struct fsm_machine *const __stop_weft_machines[]
    __attribute__((weak, visibility("hidden")));

const struct fsm_machine *const *weft__fsm_machines(unsigned *n_p) {
    *n_p = (unsigned)(__stop_weft_machines - __start_weft_machines);
    return __start_weft_machines;
}

const struct fsm_machine *weft__fsm_machine_by_name(const char *name) {
    unsigned n;
    for (const struct fsm_machine *const *p = weft__fsm_machines(&n); n--; p++)
        if (strcmp((*p)->name, name) == 0) return *p;
    return NULL;
}

bool weft__fsm_coverage(bool on) {
    bool before = weft__fsm__coverage;
    weft__fsm__coverage = on;
    return before;
}

void weft__fsm_coverage_reset(void) {
    unsigned n;
    for (const struct fsm_machine *const *p = weft__fsm_machines(&n); n--; p++)
        memset((*p)->hits, 0, sizeof *(*p)->hits * (*p)->n_events * (*p)->n_states);
}
