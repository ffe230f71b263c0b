/* Walks every machine of the library. */
#include "tests/harness.h"

#include <dirent.h>
#include <fsm/explore/explorer.h>
#include <fsm/explore/print.h>

#include "shipped.h"

/* The machines of the tests themselves have no pictures. */
static bool is_of_a_test(const struct fsm_machine *m) {
    return strcmp(m->name, "example") == 0;
}

static char *read_file(const char *path) {
    static char text[1 << 18];
    FILE *in = fopen(path, "r");
    if (!in) return NULL;
    text[fread(text, 1, sizeof text - 1, in)] = '\0';
    fclose(in);
    return text;
}

static bool is_current(const struct fsm_machine *m, const char *ending,
                       void (*print)(const struct fsm_machine *, FILE *)) {
    char path[200], *text = NULL;
    size_t size;
    snprintf(path, sizeof path, "docs/fsm/%s.%s", m->name, ending);
    FILE *out = open_memstream(&text, &size);
    print(m, out);
    fclose(out);
    const char *kept = read_file(path);
    bool same = kept && strcmp(kept, text) == 0;
    if (!same) printf("  %s is %s: run fsm-pictures\n", path, kept ? "stale" : "not there");
    free(text);
    return same;
}

TEST(every_machine_of_the_library_is_registered) {
    static const char *const names[] = {
        "collective", "conn",     "ep",        "exchange",   "link",      "memory",
        "request",    "round",    "self_lane", "shm_attach", "shm_grant", "shm_key",
        "shm_part",   "sim_lane", "tcp_conn",  "team",       "window",    "worker"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        if (!weft__fsm_machine_by_name(names[i])) printf("  no %s\n", names[i]);
        CHECK(weft__fsm_machine_by_name(names[i]));
    }
}

TEST(no_two_machines_have_one_name) {
    unsigned n;
    for (const struct fsm_machine *const *p = weft__fsm_machines(&n); n--; p++)
        CHECK(weft__fsm_machine_by_name((*p)->name) == *p);
}

TEST(tables_are_total_and_all_states_reachable_and_dead_cells_have_reasons) {
    unsigned n, faults = 0;
    for (const struct fsm_machine *const *p = weft__fsm_machines(&n); n--; p++)
        faults += weft__fsm_print_faults(*p, stdout);
    CHECK_EQ(faults, 0);
}

TEST(pictures_are_current) {
    unsigned n, stale = 0;
    for (const struct fsm_machine *const *p = weft__fsm_machines(&n); n--; p++)
        if (!is_of_a_test(*p))
            stale += !is_current(*p, "txt", weft__fsm_print_text) +
                     !is_current(*p, "dot", weft__fsm_print_dot);
    CHECK_EQ(stale, 0);
}

/* Machines of rdma (rc_…, ud_…) are drawn in builds with it, and their pictures stay in those
 * without. */
static bool is_of_another_build(const char *name) {
#ifdef WEFT_HAVE_RDMA
    return false;
#else
    return strncmp(name, "rc_", 3) == 0 || strncmp(name, "ud_", 3) == 0;
#endif
}

TEST(every_machine_is_drawn_and_nothing_else) {
    unsigned n, missing = 0, odd = 0;
    char path[600], name[256];
    for (const struct fsm_machine *const *p = weft__fsm_machines(&n); n--; p++) {
        snprintf(path, sizeof path, "docs/fsm/%s.svg", (*p)->name);
        if (!is_of_a_test(*p) && access(path, R_OK) < 0) missing++, printf("  no %s\n", path);
    }
    CHECK_EQ(missing, 0);
    DIR *folder = opendir("docs/fsm");
    CHECK(folder);
    for (struct dirent *e; (e = readdir(folder));) {
        snprintf(name, sizeof name, "%s", e->d_name);
        if (strchr(name, '.')) *strchr(name, '.') = '\0';
        if (name[0] && !weft__fsm_machine_by_name(name) && !is_of_another_build(name))
            odd++, printf("  %s is of no machine\n", e->d_name);
    }
    closedir(folder);
    CHECK_EQ(odd, 0);
}

/* Whether a row begins with it, alone or among others ("| team, member |"). */
static bool is_named(const char *overview, const char *name) {
    size_t len = strlen(name);
    for (const char *row = overview; (row = strstr(row, "\n| "));) {
        row += strlen("\n| ");
        for (const char *at = row, *end = row + strcspn(row, "|"); at < end; at++)
            if (strncmp(at, name, len) == 0 && (at == row || at[-1] == ' ') &&
                (at[len] == ',' || at[len] == ' '))
                return true;
    }
    return false;
}

TEST(the_overview_has_a_row_for_each_machine) {
    const char *text = read_file("docs/design.md");
    const char *overview = text ? strstr(text, "## Machines") : NULL;
    CHECK(overview);
    unsigned n, missing = 0;
    for (const struct fsm_machine *const *p = weft__fsm_machines(&n); n--; p++)
        if (!is_of_a_test(*p) && !is_named(overview, (*p)->name))
            missing++, printf("  docs/design.md has no row for %s\n", (*p)->name);
    CHECK_EQ(missing, 0);
    CHECK(!is_named("\n| steam | a room |", "team"));
}

/* The explorer, the simulated transport and the product are in this program, and every table is
 * in it once. */
TEST(simulation_and_explorer_link_the_shipped_tables) {
    unsigned n;
    char symbol[100];
    bool (*volatile explorer)(const struct explore_model *, struct explore_result *) = explore;
    CHECK(explorer); /* it comes from an archive, so only a program that names it contains it */
    CHECK_EQ(symbols_named("explore"), 1);
    CHECK_EQ(symbols_named("weft_ep_close"), 1);
    CHECK_EQ(symbols_named("weft__sim_lane_machine"), 1);
    for (const struct fsm_machine *const *p = weft__fsm_machines(&n); n--; p++) {
        snprintf(symbol, sizeof symbol, "weft__%s_machine", (*p)->name);
        CHECK_EQ(symbols_named(symbol), 1);
        snprintf(symbol, sizeof symbol, "%s_cells", (*p)->name);
        CHECK_EQ(symbols_named(symbol), 1);
    }
}
