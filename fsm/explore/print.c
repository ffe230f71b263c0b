/* Prints a machine as text and as a graph, and lists the faults of its table. */
#include <fsm/explore/print.h>
#include <string.h>

static const struct fsm_cell *cell_of(const struct fsm_machine *m, unsigned event, unsigned state) {
    return &m->cells[event * m->n_states + state];
}

static bool from_peer(const struct fsm_machine *m, unsigned event) {
    return m->from_peer >> event & 1;
}

static const struct fsm_dead *reason_print(const struct fsm_machine *m, unsigned event,
                                           unsigned state) {
    for (unsigned i = 0; i < m->n_dead; i++)
        if (m->dead[i].event == event && m->dead[i].state == state) return &m->dead[i];
    return NULL;
}

/* ---- tables ---------------------------------------------------------------------------------- */

typedef void (*cell_text_fn)(const struct fsm_machine *m, unsigned event, unsigned state,
                             char text[96]);

static void verb_text(const struct fsm_machine *m, unsigned event, unsigned state, char text[96]) {
    static const char *const verbs[] = {"?", "", "-", "hold", "violation", "bug"};
    const struct fsm_cell *cell = cell_of(m, event, state);
    if (cell->verb != FSM_DO)
        snprintf(text, 96, "%s", verbs[cell->verb]);
    else if (cell->action == 0)
        snprintf(text, 96, "-> %s", m->state_name[cell->next]);
    else
        snprintf(text, 96, "%s -> %s", m->action_name[cell->action], m->state_name[cell->next]);
}

static void print_line(FILE *out, char *line) {
    unsigned long len = strlen(line);
    while (len && line[len - 1] == ' ') line[--len] = '\0';
    fprintf(out, "%s\n", line);
}

static void print_table(const struct fsm_machine *m, cell_text_fn cell_text, FILE *out) {
    int first = 5, width[16];
    char text[96], line[16 * 96 + 96];
    for (unsigned e = 0; e < m->n_events; e++)
        if ((int)strlen(m->event_name[e]) > first) first = (int)strlen(m->event_name[e]);
    int at = snprintf(line, sizeof line, "%-*s  ", first + 1, "");
    for (unsigned s = 0; s < m->n_states; s++) {
        width[s] = (int)strlen(m->state_name[s]);
        for (unsigned e = 0; e < m->n_events; e++) {
            cell_text(m, e, s, text);
            if ((int)strlen(text) > width[s]) width[s] = (int)strlen(text);
        }
        at += snprintf(line + at, sizeof line - at, "%-*s  ", width[s], m->state_name[s]);
    }
    print_line(out, line);
    for (unsigned e = 0; e < m->n_events; e++) {
        snprintf(text, sizeof text, "%s%s", m->event_name[e], from_peer(m, e) ? "*" : "");
        at = snprintf(line, sizeof line, "%-*s  ", first + 1, text);
        for (unsigned s = 0; s < m->n_states; s++) {
            cell_text(m, e, s, text);
            at += snprintf(line + at, sizeof line - at, "%-*s  ", width[s], text);
        }
        print_line(out, line);
    }
}

/* One line for the cells of a row that share a reason and stand together; returns the entry
 * after them. */
static const struct fsm_dead *print_reason(const struct fsm_machine *m,
                                           const struct fsm_dead *first, const struct fsm_dead *end,
                                           FILE *out) {
    const struct fsm_dead *d = first;
    fprintf(out, "  %s in %s", m->event_name[d->event], m->state_name[d->state]);
    for (d++; d < end && d->event == first->event && strcmp(d->why, first->why) == 0; d++)
        fprintf(out, ", %s", m->state_name[d->state]);
    fprintf(out, ": %s\n", first->why);
    return d;
}

void weft__fsm_print_text(const struct fsm_machine *m, FILE *out) {
    fprintf(out, "%s\n\n", m->name);
    print_table(m, verb_text, out);
    fprintf(out,
            "\n* comes off the wire;  - nothing to do;  hold: again after the next transition\n");
    if (m->n_dead) fprintf(out, "\nnever reached:\n");
    const struct fsm_dead *end = m->dead + m->n_dead;
    for (const struct fsm_dead *d = m->dead; d < end; d = print_reason(m, d, end, out)) continue;
}

/* ---- graph ----------------------------------------------------------------------------------- */

static bool is_last(const struct fsm_machine *m, unsigned state) {
    for (unsigned e = 0; e < m->n_events; e++)
        if (cell_of(m, e, state)->verb == FSM_DO && cell_of(m, e, state)->next != state)
            return false;
    return true;
}

/* Lines "A, B / act" of one edge: events that run the same action share a line. */
static void print_edge(const struct fsm_machine *m, unsigned from, unsigned to, FILE *out) {
    bool open = false;
    for (unsigned a = 0; a < m->n_actions; a++) {
        bool any = false;
        for (unsigned e = 0; e < m->n_events; e++) {
            const struct fsm_cell *cell = cell_of(m, e, from);
            if (cell->verb != FSM_DO || cell->next != to || cell->action != a) continue;
            if (!open)
                fprintf(out, "    %s -> %s [label=\"", m->state_name[from], m->state_name[to]);
            open = true;
            fprintf(out, "%s%s%s", any ? ", " : "", from_peer(m, e) ? "?" : "", m->event_name[e]);
            any = true;
        }
        if (any) fprintf(out, "%s%s\\l", a ? " / " : "", a ? m->action_name[a] : "");
    }
    if (open) fprintf(out, "\"];\n");
}

void weft__fsm_print_dot(const struct fsm_machine *m, FILE *out) {
    fprintf(out,
            "digraph %s {\n    rankdir=TB;\n    node [shape=box, style=rounded, "
            "fontname=\"Helvetica\"];\n",
            m->name);
    fprintf(out, "    edge [fontname=\"Helvetica\", fontsize=10];\n");
    for (unsigned s = 0; s < m->n_states; s++) {
        const char *look = m->starts >> s & 1 ? " [style=\"rounded,bold\"]"
                           : is_last(m, s)    ? " [peripheries=2]"
                                              : "";
        fprintf(out, "    %s%s;\n", m->state_name[s], look);
    }
    for (unsigned from = 0; from < m->n_states; from++)
        for (unsigned to = 0; to < m->n_states; to++) print_edge(m, from, to, out);
    fprintf(out, "}\n");
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* States that some row of DO cells leads to from where it begins. */
static unsigned reachable_print(const struct fsm_machine *m) {
    unsigned seen = m->starts, before = 0;
    while (seen != before) {
        before = seen;
        for (unsigned s = 0; s < m->n_states; s++)
            for (unsigned e = 0; e < m->n_events && seen >> s & 1; e++)
                if (cell_of(m, e, s)->verb == FSM_DO) seen |= 1u << cell_of(m, e, s)->next;
    }
    return seen;
}

static unsigned cell_faults(const struct fsm_machine *m, unsigned e, unsigned s, FILE *out) {
    const struct fsm_cell *cell = cell_of(m, e, s);
    const char *fault = NULL;
    if (cell->verb == FSM_NO_CELL || cell->verb > FSM_BUG)
        fault = "is no cell";
    else if (cell->verb == FSM_DO && (cell->next >= m->n_states || cell->action >= m->n_actions))
        fault = "leads to no state";
    else if (cell->verb == FSM_BUG && from_peer(m, e))
        fault = "is BUG, and a peer may send anything";
    else if (cell->verb == FSM_BUG && !reason_print(m, e, s))
        fault = "is BUG without a reason";
    else if (reason_print(m, e, s) && !reason_print(m, e, s)->why[0])
        fault = "has an empty reason";
    if (fault)
        fprintf(out, "%s: %s in %s %s\n", m->name, m->event_name[e], m->state_name[s], fault);
    return fault != NULL;
}

unsigned weft__fsm_print_faults(const struct fsm_machine *m, FILE *out) {
    unsigned faults = 0, seen = reachable_print(m);
    for (unsigned e = 0; e < m->n_events; e++)
        for (unsigned s = 0; s < m->n_states; s++) faults += cell_faults(m, e, s, out);
    for (unsigned s = 0; s < m->n_states; s++) {
        if (seen >> s & 1) continue;
        fprintf(out, "%s: no way leads to %s\n", m->name, m->state_name[s]);
        faults++;
    }
    return faults;
}
