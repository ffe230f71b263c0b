/* Loggers: who writes, what is dropped, and that lines are whole. */
#include "../harness.h"
#include "view_processes.h"
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <tests/support/scarce_descriptors.h>
#include <unistd.h>
#include <weft/logger.h>

static char collected[256];

static void collect(weft_log_level_t level, const char *room, const char *line, void *arg) {
    (void)arg;
    snprintf(collected, sizeof collected, "%d %s %s", (int)level, room, line);
}

TEST(a_function_receives_each_line) {
    weft_logger_t *logger;
    weft_logger_params_t params = {.sink = WEFT_LOGGER_FN, .fn = collect, .name = "unit"};
    CHECK_EQ(weft_logger_create(NULL, &params, &logger), WEFT_OK);
    weft_logger_write(logger, WEFT_LOG_WARN, "%d of %d", 1, 2);
    CHECK_EQ(strcmp(collected, "2 unit 1 of 2"), 0);
    weft_logger_destroy(logger);
}

TEST(what_is_less_important_is_dropped) {
    weft_logger_t *logger;
    weft_logger_params_t params = {.sink = WEFT_LOGGER_FN, .fn = collect, .level = WEFT_LOG_WARN};
    CHECK_EQ(weft_logger_create(NULL, &params, &logger), WEFT_OK);
    collected[0] = 0;
    weft_logger_write(logger, WEFT_LOG_INFO, "not this");
    CHECK_EQ(collected[0], 0);
    CHECK(!weft_logger_writes(logger, WEFT_LOG_INFO));
    CHECK(weft_logger_writes(logger, WEFT_LOG_ERROR));
    weft_logger_destroy(logger);
}

TEST(a_null_logger_writes_nothing) {
    weft_logger_t *logger;
    weft_logger_params_t params = {
        .scope = WEFT_LOGGER_NULL, .sink = WEFT_LOGGER_FN, .fn = collect};
    CHECK_EQ(weft_logger_create(NULL, &params, &logger), WEFT_OK);
    collected[0] = 0;
    weft_logger_write(logger, WEFT_LOG_ERROR, "nor this");
    weft_logger_write(NULL, WEFT_LOG_ERROR, "nor this");
    CHECK_EQ(collected[0], 0);
    weft_logger_destroy(logger);
    weft_logger_destroy(NULL);
}

/* Writes of at most PIPE_BUF bytes to one pipe do not mix. */
TEST(the_longest_line_is_one_write_of_a_pipe) {
    static char text[5001], line[8192];
    int out[2];
    weft_logger_t *logger;
    memset(text, 'x', sizeof text - 1);
    CHECK_EQ(pipe(out), 0);
    char path[32];
    snprintf(path, sizeof path, "/dev/fd/%d", out[1]);
    weft_logger_params_t params = {
        .sink = WEFT_LOGGER_FILE, .path = path, .name = "a name of thirty-one characters"};
    CHECK_EQ(weft_logger_create(NULL, &params, &logger), WEFT_OK);
    weft_logger_write(logger, WEFT_LOG_ERROR, "%s", text);
    ssize_t n = read(out[0], line, sizeof line);
    CHECK(n > 4000 && n <= PIPE_BUF);
    CHECK_EQ(line[n - 1], '\n');
    CHECK_EQ(strspn(strchr(line, 'x'), "x"), 4000);
    weft_logger_destroy(logger);
    close(out[0]);
    close(out[1]);
}

enum { WRITERS = 4, LINES = 200, LONG = 3000 };

static void write_lines(const char *path, int writer) {
    char text[LONG + 1];
    weft_logger_t *logger;
    weft_logger_params_t params = {
        .scope = WEFT_LOGGER_PROCESS, .sink = WEFT_LOGGER_FILE, .path = path, .name = "w"};
    memset(text, 'a' + writer, LONG);
    text[LONG] = 0;
    if (weft_logger_create(NULL, &params, &logger) < 0) _exit(1);
    for (int i = 0; i < LINES; i++) weft_logger_write(logger, WEFT_LOG_ERROR, "%s", text);
    weft_logger_destroy(logger);
    _exit(0);
}

TEST(lines_of_many_processes_in_one_file_are_whole) {
    char path[] = "/tmp/weft-logger-XXXXXX", line[LONG + 64];
    int fd = mkstemp(path), n = 0;
    CHECK(fd >= 0);
    for (int w = 0; w < WRITERS; w++)
        if (fork() == 0) write_lines(path, w);
    for (int w = 0; w < WRITERS; w++) {
        int status;
        wait(&status);
        CHECK_EQ(status, 0);
    }
    FILE *file = fdopen(fd, "r");
    for (; fgets(line, sizeof line, file); n++) {
        const char *text = strstr(line, ": ") + 2;
        CHECK_EQ(strspn(text, (char[]){text[0], 0}), LONG);
        CHECK_EQ(text[LONG], '\n');
    }
    CHECK_EQ(n, WRITERS * LINES);
    fclose(file);
    unlink(path);
}

/* ---- journald: a socket in its place, seen by one process --------------------------------- */

enum { NO_NAMESPACE = 3 };

static int journald_socket(void) {
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "/run/systemd/journal/socket"};
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("run", "/run", "tmpfs", 0, NULL) < 0)
        _exit(NO_NAMESPACE);
    mkdir("/run/systemd", 0700);
    mkdir("/run/systemd/journal", 0700);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    return bind(fd, (struct sockaddr *)&at, sizeof at) < 0 ? -1 : fd;
}

static int log_to_journald(void) {
    weft_logger_t *logger;
    weft_logger_params_t params = {.sink = WEFT_LOGGER_JOURNALD, .name = "unit"};
    char entry[512] = "";
    if (weft_logger_create(NULL, &params, &logger) != WEFT_ERR_NOT_FOUND &&
        access("/run/systemd/journal/socket", F_OK) != 0)
        return 10;
    int fd = journald_socket();
    if (fd < 0 || weft_logger_create(NULL, &params, &logger) != WEFT_OK) return 11;
    weft_logger_write(logger, WEFT_LOG_WARN, "%d of %d", 1, 2);
    if (recv(fd, entry, sizeof entry - 1, 0) <= 0) return 12;
    if (strcmp(entry, "PRIORITY=4\nSYSLOG_IDENTIFIER=unit\nMESSAGE=1 of 2\n") != 0) return 13;
    /* No line of a text is a field. */
    static const char two[] = "PRIORITY=4\nSYSLOG_IDENTIFIER=unit\n"
                              "MESSAGE\n\14\0\0\0\0\0\0\0a\nPRIORITY=0\n";
    weft_logger_write(logger, WEFT_LOG_WARN, "%s", "a\nPRIORITY=0");
    if (recv(fd, entry, sizeof entry, 0) != sizeof two - 1) return 14;
    if (memcmp(entry, two, sizeof two - 1) != 0) return 15;
    weft_logger_destroy(logger);
    params.name = "a\nb";
    if (weft_logger_create(NULL, &params, &logger) != WEFT_OK) return 16;
    weft_logger_write(logger, WEFT_LOG_WARN, "c");
    static const char named[] = "PRIORITY=4\nSYSLOG_IDENTIFIER\n"
                                "\3\0\0\0\0\0\0\0a\nb\nMESSAGE=c\n";
    if (recv(fd, entry, sizeof entry, 0) != sizeof named - 1) return 17;
    weft_logger_destroy(logger);
    return memcmp(entry, named, sizeof named - 1) != 0;
}

TEST(journald_gets_an_entry_with_its_priority) {
    int status;
    if (fork() == 0) _exit(log_to_journald());
    wait(&status);
    if (WEXITSTATUS(status) == NO_NAMESPACE) SKIP("needs root for a mount namespace");
    CHECK_EQ(status, 0);
}

/* ---- the duplicate of standard output ------------------------------------------------------- */

/* The lowest descriptor that is free; the logger gets it. */
static int free_fd(void) {
    int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(fd);
    return fd;
}

TEST(programs_that_are_executed_do_not_get_a_loggers_standard_output) {
    weft_logger_t *logger;
    int fd = free_fd();
    CHECK_EQ(weft_logger_create(NULL, NULL, &logger), WEFT_OK);
    CHECK(fcntl(fd, F_GETFD) >= 0 && fcntl(fd, F_GETFD) & FD_CLOEXEC);
    weft_logger_destroy(logger);
    CHECK_EQ(fcntl(fd, F_GETFD), -1);
}

TEST(a_logger_without_free_descriptors_is_not_created) {
    weft_logger_t *logger = NULL;
    descriptors_leave(0);
    weft_status_t st = weft_logger_create(NULL, NULL, &logger);
    descriptors_give_back();
    CHECK_EQ(st, WEFT_ERR_NO_FDS);
    CHECK(!logger);
}

TEST(errors_of_a_logger_are_named) {
    char why[256];
    weft_logger_t *logger;
    weft_logger_params_t none = {.sink = WEFT_LOGGER_FILE}, no_fn = {.sink = WEFT_LOGGER_FN};
    weft_logger_params_t no_file = {.sink = WEFT_LOGGER_FILE, .path = "/no-such-folder/file"};
    /* No process would ever write: the null view has one. */
    weft_logger_params_t no_speaker = {.speaker = 1}, no_level = {.level = WEFT_LOG_TRACE + 1};
    CHECK_EQ(weft_logger_create(NULL, &no_speaker, &logger), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_logger_create(NULL, &no_level, &logger), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_logger_create(NULL, &none, &logger), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_logger_create(NULL, &no_fn, &logger), WEFT_ERR_INVALID_PARAM);
    weft_status_describe(WEFT_ERR_INVALID_PARAM, why, sizeof why);
    CHECK(strstr(why, "params->fn") != NULL);
    CHECK_EQ(weft_logger_create(NULL, &no_file, &logger), WEFT_ERR_IO);
    CHECK_EQ(weft_logger_create(NULL, NULL, NULL), WEFT_ERR_INVALID_PARAM);
}

static void refuse_at(const char *store, uint32_t rank, uint32_t n) {
    weft_view_t *view = join(store, rank, n);
    weft_logger_t *logger;
    weft_logger_params_t no_path = {.sink = WEFT_LOGGER_FILE}, no_fn = {.sink = WEFT_LOGGER_FN};
    weft_logger_params_t no_sink = {.sink = WEFT_LOGGER_JOURNALD + 1};
    CHECK_EQ(weft_logger_create(view, &no_path, &logger), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_logger_create(view, &no_fn, &logger), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_logger_create(view, &no_sink, &logger), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(parameters_are_refused_by_the_processes_that_write_nothing_too) {
    in_processes(2, refuse_at);
}
