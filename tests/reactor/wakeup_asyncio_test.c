/*
 * Every promise of the wakeup contract inside Python's asyncio. The interpreter is a process of its
 * own that inherits the worker's fd: its loop's add_reader callback says so through a pipe and
 * waits until progress was made here, as a binding's callback would make it there.
 */
#include "hosts.h"
#include "traffic.h"
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <tests/harness.h>

extern char **environ;

static const char script[] = "import asyncio, os, sys\n"
                             "loop = asyncio.new_event_loop()\n"
                             "def ready():\n"
                             "    try:\n"
                             "        os.write(3, b'r')\n"
                             "        if not os.read(3, 1): loop.stop()\n"
                             "    except OSError: loop.stop()\n" /* the test ended meanwhile */
                             "loop.add_reader(4, ready)\n"
                             /* between reports only the end is to be read */
                             "loop.add_reader(3, loop.stop)\n"
                             "os.write(3, b'u')\n"
                             "loop.run_forever()\n";

struct python {
    int pipe;
    pid_t pid;
};

static void open_asyncio(struct host *host) {
    struct python *python = host->watcher = calloc(1, sizeof *python);
    int pair[2];
    char up;
    posix_spawn_file_actions_t actions;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) abort();
    /* By way of high numbers: neither may be overwritten by the other's place. */
    int far_pipe = fcntl(pair[1], F_DUPFD_CLOEXEC, 100),
        far_fd = fcntl(weft__reactor_fd(host->r), F_DUPFD_CLOEXEC, 100);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, far_pipe, 3);
    posix_spawn_file_actions_adddup2(&actions, far_fd, 4);
    char *argv[] = {"python3", "-c", (char *)script, NULL};
    if (posix_spawnp(&python->pid, "python3", &actions, NULL, argv, environ)) abort();
    posix_spawn_file_actions_destroy(&actions);
    close(far_pipe), close(far_fd), close(pair[1]);
    python->pipe = pair[0];
    if (read(python->pipe, &up, 1) != 1) abort();
}

static void step_asyncio(struct host *host, int timeout_ms) {
    struct python *python = host->watcher;
    struct pollfd fd = {python->pipe, POLLIN, 0};
    char report;
    if (poll(&fd, 1, timeout_ms) <= 0) return;
    if (read(python->pipe, &report, 1) != 1) abort();
    host_progress(host);
    if (write(python->pipe, "", 1) != 1) abort();
}

static void close_asyncio(struct host *host) {
    struct python *python = host->watcher;
    close(python->pipe);
    int status;
    if (waitpid(python->pid, &status, 0) != python->pid || status) abort();
    free(python);
}

static const struct host host_asyncio = {.name = "asyncio",
                                         .open = open_asyncio,
                                         .step = step_asyncio,
                                         .close = close_asyncio,
                                         .report_ms = 30};

TEST(wakes_asyncio) {
    CHECK(scenarios_pass(&host_asyncio));
}
TEST(messages_wake_asyncio) {
    CHECK(traffic_passes(&host_asyncio));
}
