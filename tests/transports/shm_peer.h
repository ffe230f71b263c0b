/* A second process at the other end of a shm lane: forked before anything was opened, driven by
 * a function. */
#ifndef WEFT_TESTS_TRANSPORTS_SHM_PEER_H
#define WEFT_TESTS_TRANSPORTS_SHM_PEER_H

#include "pair.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

struct peer {
    char directory[64];
    pid_t pid;
    struct pair p; /* this process's half: context, reactor_a, iface_a, a */
};

/* Opens this process's half only. */
static inline void half_open(struct pair *p, const char *directory, uint64_t worker_id,
                             const char *close_timeout) {
    memset(p, 0, sizeof *p);
    p->transport = &weft__transport_shm;
    p->a.pair = p;
    p->next_accepted = &p->a;
    weft_setting_t settings[] = {
        {"shm.directory", directory}, {"close.timeout", close_timeout}, {"lanes.switch", "off"}};
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 3},
                                 &p->context),
             WEFT_OK);
    CHECK_EQ(weft__reactor_create(p->context, &(struct reactor_params){0}, &p->reactor_a), WEFT_OK);
    p->reactor_b = p->reactor_a;
    CHECK_EQ(pair_iface(p, p->reactor_a, worker_id, &p->iface_a), WEFT_OK);
    p->iface_b = p->iface_a;
}

/* Ends when the lane was closed by this side or lost. */
static inline void half_close(struct pair *p) {
    pair_end_close(&p->a, true);
    if (p->listener) p->iface_a->ops->listener_close(p->listener);
    p->iface_a->ops->close(p->iface_a);
    pair_turns(p, 2);
    weft__reactor_destroy(p->reactor_a);
    CHECK_EQ(weft_context_destroy(p->context), WEFT_OK);
}

/* The child listens as "peer", accepts one lane and runs `work`; this process has dialled it
 * when the call returns. */
static inline void peer_open(struct peer *peer, void (*work)(struct pair *p, void *arg),
                             void *arg) {
    memset(peer, 0, sizeof *peer);
    strcpy(peer->directory, "/tmp/weft-test-XXXXXX");
    CHECK(mkdtemp(peer->directory));
    fflush(stdout);
    peer->pid = fork();
    CHECK(peer->pid >= 0);
    if (peer->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct pair p;
        half_open(&p, peer->directory, 0xc1, "1s");
        if (p.iface_a->ops->listen(p.iface_a, "peer", &(struct listen_how){.backlog = 8}, NULL,
                                   &p.listener) != WEFT_OK)
            _exit(3);
        while (!p.a.n_open) pair_turn(&p);
        work(&p, arg);
        _exit(0);
    }
    half_open(&peer->p, peer->directory, 0xd2, "300ms");
    struct lane *lane = NULL;
    double give_up = test_now() + test_timeout(60);
    while (peer->p.iface_a->ops->connect_uri(peer->p.iface_a, "peer", &lane) != WEFT_OK &&
           test_now() < give_up)
        usleep(500);
    CHECK(lane);
    lane->owner = &peer->p.a;
    peer->p.a.lane = lane;
    CHECK(pair_until(&peer->p, peer->p.a.n_open == 1));
}

static inline void peer_close(struct peer *peer) {
    char socket[128];
    int status;
    half_close(&peer->p);
    kill(peer->pid, SIGKILL);
    waitpid(peer->pid, &status, 0);
    snprintf(socket, sizeof socket, "%s/peer", peer->directory);
    unlink(socket);
    CHECK_EQ(rmdir(peer->directory), 0);
}

#endif
