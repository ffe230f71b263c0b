/* A listener's name, and what it does when it cannot accept. */
#include "pair.h"
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <transports/shm/lane/shm.h>

/* ---- the name -------------------------------------------------------------------------------- */

static void (*before_unlink)(const char *path);

/* The library's calls come here, too. */
__attribute__((visibility("default"))) int unlink(const char *path) {
    void (*look)(const char *) = before_unlink;
    before_unlink = NULL;
    if (look) look(path);
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

static int successor;

static void take_the_name(const char *path) {
    if (weft__shm_bind(path, false, 4, &successor) < 0) successor = -1;
}

static bool is_listened_to(const char *path) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    bool listened = connect(fd, (struct sockaddr *)&to, sizeof to) == 0;
    close(fd);
    return listened;
}

/* As a child has it that is forked by another thread at the worst moment. */
static int inherited = -1;
static bool forks;
__attribute__((visibility("default"))) int flock(int fd, int operation) {
    int st = (int)syscall(SYS_flock, fd, operation);
    if (st == 0 && operation & LOCK_EX && forks) inherited = dup(fd);
    return st;
}

TEST(a_child_that_is_forked_while_a_name_is_taken_keeps_no_one_from_another) {
    struct pair p;
    struct tl_listener *first, *second;
    pair_open(&p, &weft__transport_shm, 0);
    forks = true;
    CHECK_EQ(p.iface_a->ops->listen(p.iface_a, "first", &(struct listen_how){.backlog = 4}, NULL,
                                    &first),
             WEFT_OK);
    forks = false;
    CHECK(inherited >= 0);
    CHECK_EQ(p.iface_b->ops->listen(p.iface_b, "second", &(struct listen_how){.backlog = 4}, NULL,
                                    &second),
             WEFT_OK);
    close(inherited);
    p.iface_a->ops->listener_close(first);
    p.iface_b->ops->listener_close(second);
    pair_close(&p);
}

TEST(a_name_whose_listener_has_no_time_to_accept_is_taken_all_the_same) {
    struct pair p;
    struct tl_listener *first, *second;
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int waiting[4];
    pair_open(&p, &weft__transport_shm, 0);
    CHECK_EQ(
        p.iface_a->ops->listen(p.iface_a, "name", &(struct listen_how){.backlog = 1}, NULL, &first),
        WEFT_OK);
    snprintf(to.sun_path, sizeof to.sun_path, "%s/name", p.directory);
    for (int i = 0; i < 4; i++) {
        waiting[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(waiting[i], (struct sockaddr *)&to, sizeof to);
    }
    CHECK_EQ(p.iface_b->ops->listen(p.iface_b, "name", &(struct listen_how){.backlog = 1}, NULL,
                                    &second),
             WEFT_ERR_EXISTS);
    for (int i = 0; i < 4; i++) close(waiting[i]);
    p.iface_a->ops->listener_close(first);
    pair_close(&p);
}

/* Another process takes it at the worst moment, or learns that it is taken. */
TEST(a_name_that_another_has_taken_over_is_not_taken_from_it) {
    struct pair p;
    char path[108];
    pair_open(&p, &weft__transport_shm, 0);
    CHECK_EQ(p.iface_b->ops->listen(p.iface_b, "name", &(struct listen_how){.backlog = 4}, NULL,
                                    &p.listener),
             WEFT_OK);
    snprintf(path, sizeof path, "%s/name", p.directory);
    before_unlink = take_the_name;
    p.iface_b->ops->listener_close(p.listener);
    p.listener = NULL;
    CHECK(!before_unlink);
    if (successor < 0) CHECK_EQ(weft__shm_bind(path, false, 4, &successor), WEFT_OK);
    CHECK(is_listened_to(path));
    unlink(path);
    close(successor);
    pair_close(&p);
}
