/* The progress bar of a graph: what it writes to a pipe, to a terminal and after an error. */
#include "../collectives/team.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>

enum { N = 50 };

static char output[65536];
static int stderr_before;

static void redirect(int fd) {
    fflush(stderr);
    stderr_before = dup(STDERR_FILENO);
    CHECK(stderr_before >= 0 && dup2(fd, STDERR_FILENO) >= 0);
}

static void restore(void) {
    CHECK(dup2(stderr_before, STDERR_FILENO) >= 0);
    close(stderr_before);
}

/* What was written to the other end; it does not wait for more. */
static const char *read_output(int fd) {
    CHECK_EQ(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    ssize_t n = read(fd, output, sizeof output - 1);
    output[n > 0 ? n : 0] = 0;
    return output;
}

/* A terminal passes on what is written a moment later. */
static void read_line(int fd) {
    size_t len = 0;
    output[0] = 0;
    while (!strchr(output, '\n')) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        CHECK(poll(&ready, 1, (int)test_timeout(30000)) == 1);
        ssize_t n = read(fd, output + len, sizeof output - 1 - len);
        CHECK(n > 0);
        len += (size_t)n;
        output[len] = 0;
    }
}

static weft_status_t work(weft_task_call_t *call) {
    return call->arg ? WEFT_ERR_REJECTED : WEFT_OK;
}

/* `fails`: the last task of a chain, or N. */
static void run_chain(int progress_bar, int fails) {
    weft_graph_t *graph = NULL;
    weft_task_t task = 0;
    weft_graph_params_t params = {.n_threads = 1, .progress_bar = progress_bar};
    CHECK_EQ(weft_graph_create(&params, &graph), WEFT_OK);
    for (int i = 0; i < N; i++) {
        weft_task_params_t one = {
            .fn = work, .arg = i == fails ? graph : NULL, .inputs = &task, .n_inputs = i > 0};
        CHECK_EQ(weft_graph_add(graph, &one, &task), WEFT_OK);
    }
    CHECK_EQ(weft_graph_run_wait(graph), fails < N ? WEFT_ERR_REJECTED : WEFT_OK);
    weft_graph_destroy(graph);
}

static const char *output_to_a_pipe(int progress_bar, int fails) {
    int ends[2];
    CHECK_EQ(pipe(ends), 0);
    redirect(ends[1]);
    run_chain(progress_bar, fails);
    restore();
    read_output(ends[0]);
    close(ends[0]);
    close(ends[1]);
    return output;
}

static bool ends_with(const char *text, const char *end) {
    size_t len = strlen(text), n = strlen(end);
    return len >= n && strcmp(text + len - n, end) == 0;
}

TEST(a_bar_is_for_terminals_unless_it_is_forced) {
    CHECK_EQ(strlen(output_to_a_pipe(0, N)), 0);
    CHECK_EQ(strlen(output_to_a_pipe(WEFT_BAR_ON_TERMINAL, N)), 0);
    output_to_a_pipe(WEFT_BAR_ALWAYS, N);
    CHECK(ends_with(output, "\r[##############################] 100 %, 50 of 50 tasks\n"));
    CHECK(strchr(output, '\n') == output + strlen(output) - 1);
}

TEST(the_bar_of_a_run_that_fails_is_not_full) {
    output_to_a_pipe(WEFT_BAR_ALWAYS, N - 1);
    CHECK(ends_with(output, " tasks, stopped\n"));
    CHECK(strstr(output, "100 %") == NULL);
}

/* The longest part between two returns of the carriage. */
static size_t longest_line(const char *text) {
    size_t most = 0;
    for (; *text; text += strspn(text, "\r\n")) {
        size_t len = strcspn(text, "\r\n");
        most = len > most ? len : most;
        text += len;
    }
    return most;
}

static void show_on_terminal(unsigned short columns) {
    struct winsize size = {.ws_row = 24, .ws_col = columns};
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    CHECK(terminal >= 0 && ioctl(terminal, TIOCSWINSZ, &size) == 0);
    redirect(terminal);
    run_chain(WEFT_BAR_ON_TERMINAL, N);
    restore();
    read_line(master);
    close(terminal);
    close(master);
}

TEST(a_bar_is_one_line_that_the_terminal_has_room_for) {
    for (unsigned short columns = 26; columns <= 200; columns += 29) {
        show_on_terminal(columns);
        CHECK(ends_with(output, "100 %, 50 of 50 tasks\r\n"));
        CHECK(strchr(output, '\n') == output + strlen(output) - 1);
        CHECK(longest_line(output) < columns);
    }
}

static void run_over_members(struct crew *c) {
    weft_graph_t *graph[3];
    for (uint32_t r = 0; r < 3; r++) {
        weft_graph_params_t params = {
            .n_threads = 1, .team = c->rank[r].team, .progress_bar = WEFT_BAR_ALWAYS};
        CHECK_EQ(weft_graph_create(&params, &graph[r]), WEFT_OK);
        for (uint32_t i = 0; i < N; i++)
            CHECK_EQ(weft_graph_add(graph[r], &(weft_task_params_t){.fn = work}, NULL), WEFT_OK);
        expect_outcome(&c->rank[r]);
        CHECK_EQ(weft_graph_run(graph[r], c->rank[r].worker, on_outcome, &c->rank[r]),
                 WEFT_IN_PROGRESS);
    }
    UNTIL(c, all_notified(c));
    for (uint32_t r = 0; r < 3; r++) weft_graph_destroy(graph[r]);
}

TEST(of_all_members_rank_0_shows_a_bar) {
    struct crew c;
    int ends[2];
    weft_setting_t settings[] = {{"close.timeout", "20ms"}};
    crew_workers(&c, 3, "self,shm", settings, 1);
    crew_teams(&c);
    CHECK_EQ(pipe(ends), 0);
    redirect(ends[1]);
    run_over_members(&c);
    restore();
    read_output(ends[0]);
    CHECK(ends_with(output, "100 %, 17 of 17 tasks\n"));
    CHECK(strchr(output, '\n') == output + strlen(output) - 1);
    close(ends[0]);
    close(ends[1]);
    crew_down(&c);
}
