/* Names of listeners that were killed go when the next listener comes. Those of the living stay. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <tests/support/worker_pair.h>
#include <transports/shm/memory/directory.h>
#include <unistd.h>

enum { BINDERS = 3, ROUNDS = 300 };

static char directory[64];

static void begin(void) {
    strcpy(directory, "/tmp/weft-test-XXXXXX");
    CHECK(mkdtemp(directory));
    setenv("WEFT_SHM_DIRECTORY", directory, 1);
}

static void end(void) {
    unsetenv("WEFT_SHM_DIRECTORY");
    CHECK_EQ(rmdir(directory), 0);
}

static const char *path_of(const char *name) {
    static char path[SHM_PATH_SIZE];
    CHECK_EQ(weft__shm_path(directory, name, path), WEFT_OK);
    return path;
}

static int listen_as(const char *name) {
    int fd = -1;
    CHECK_EQ(weft__shm_bind(path_of(name), false, 4, &fd), WEFT_OK);
    return fd;
}

static bool exists(const char *name) {
    struct stat st;
    return lstat(path_of(name), &st) == 0;
}

static bool is_listened_to(const char *name) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strcpy(to.sun_path, path_of(name));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    bool listened = connect(fd, (struct sockaddr *)&to, sizeof to) == 0;
    close(fd);
    return listened;
}

/* A process of its own listens by the library, and is killed. */
static void killed_listener(const char *uri) {
    int ready[2];
    char byte;
    CHECK_EQ(pipe(ready), 0);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct two t;
        weft_listener_t *listener;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        two_workers(&t, "shm", NULL, 0);
        CHECK_EQ(weft_listen(t.a, uri, NULL, &listener), 0);
        CHECK_EQ(write(ready[1], "", 1), 1);
        for (;;) pause();
    }
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    kill(child, SIGKILL);
    CHECK_EQ(waitpid(child, NULL, 0), child);
    close(ready[0]);
    close(ready[1]);
}

TEST(a_workers_first_address_removes_the_names_of_the_dead) {
    char address[256];
    size_t len = sizeof address;
    struct two t;
    begin();
    killed_listener("shm://killed");
    CHECK(exists("killed"));
    two_workers(&t, "shm", NULL, 0);
    CHECK_EQ(weft_worker_address(t.a, address, &len), 0);
    CHECK(!exists("killed"));
    two_down(&t);
    end();
}

TEST(another_listener_removes_the_names_of_the_dead) {
    weft_listener_t *listener;
    struct two t;
    begin();
    killed_listener("shm://killed");
    two_workers(&t, "shm", NULL, 0);
    CHECK_EQ(weft_listen(t.a, "shm://living", NULL, &listener), 0);
    CHECK(!exists("killed") && exists("living"));
    two_down(&t);
    end();
}

TEST(a_living_listener_is_neither_removed_nor_disturbed) {
    begin();
    int living = listen_as("living"), file = open(path_of("file"), O_CREAT | O_WRONLY, 0600);
    close(listen_as("dead"));
    weft__shm_sweep(directory);
    CHECK(!exists("dead"));
    CHECK_EQ(poll(&(struct pollfd){.fd = living, .events = POLLIN}, 1, 0), 0); /* no one called */
    CHECK(is_listened_to("living") && exists("file"));
    close(living);
    close(file);
    unlink(path_of("living"));
    unlink(path_of("file"));
    end();
}

/* Process 1 lives, and that of the last name is this one. */
TEST(a_name_that_begins_like_a_workers_own_is_a_name_like_others) {
    char own[SHM_OWN_NAME_SIZE];
    snprintf(own, sizeof own, SHM_OWN_NAME, getpid(), UINT64_C(7));
    begin();
    close(listen_as("w-1-jobs"));
    close(listen_as("w-1-0000000000000007x"));
    close(listen_as(own));
    weft__shm_sweep(directory);
    bool gone = !exists("w-1-jobs") && !exists("w-1-0000000000000007x"), own_stays = exists(own);
    unlink(path_of("w-1-jobs"));
    unlink(path_of("w-1-0000000000000007x"));
    unlink(path_of(own));
    end();
    CHECK(gone && own_stays);
}

TEST(what_is_bound_and_not_listened_on_yet_stays) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    begin();
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    strcpy(at.sun_path, path_of("bound"));
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0);
    weft__shm_sweep(directory);
    bool stays = exists("bound");
    close(fd);
    if (stays) unlink(at.sun_path);
    end();
    CHECK(stays);
}

/* Takes its name from a dead one again and again. */
static void bind_again_and_again(const char *name) {
    for (int i = 0; i < ROUNDS; i++) {
        int fd = listen_as(name);
        CHECK(is_listened_to(name));
        close(fd);
    }
    unlink(path_of(name));
}

TEST(no_name_is_taken_from_one_who_has_just_bound_it) {
    pid_t child[BINDERS];
    int n = BINDERS;
    begin();
    fflush(stdout);
    for (int i = 0; i < BINDERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "binder-%d", i);
        child[i] = fork();
        CHECK(child[i] >= 0);
        if (child[i] != 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (setjmp(test_out) == 0) bind_again_and_again(name);
        _exit(test_result);
    }
    for (int status; n > 0;) {
        weft__shm_sweep(directory);
        if (waitpid(-1, &status, WNOHANG) <= 0) continue;
        CHECK_EQ(status, 0);
        n--;
    }
    end();
}
