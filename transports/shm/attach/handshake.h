/* The words on the socket of an attachment (handshake.c), and the processes of peers
 * (process.c). */
#ifndef WEFT_TRANSPORTS_SHM_ATTACH_HANDSHAKE_H
#define WEFT_TRANSPORTS_SHM_ATTACH_HANDSHAKE_H

#include <transports/shm/lane/shm.h>

weft_status_t weft__shm_offer(struct shm_lane *lane); /* makes this side's memory */
/* its ring carries nothing more: another lane may have one */
void weft__shm_ring_uncount(struct shm_lane *lane);
weft_status_t weft__shm_send_hello(struct shm_lane *lane, uint8_t kind);
weft_status_t weft__shm_send_word(int fd, uint8_t kind, weft_status_t status);
void weft__shm_read(struct aux_watch *watch, int events);
void weft__shm_release(struct shm_lane *lane); /* this side has done with the lane */
/* Beyond that, a mailbox may hold nodes of the lane, or the peer may read staging chunks. */
static inline bool shm_outlives_release(const struct shm_lane *lane) {
    return lane->by_mail || lane->mail.tx.n_staged;
}
void weft__shm_close_all(struct shm_lane *lane);
/* A ring goes to lanes that earn it; otherwise the first lanes have the rings. */
bool weft__shm_rings_are_earned(const struct shm_iface *iface);

/* process.c */
weft_status_t weft__shm_process_get(struct shm_lane *lane,
                                    pid_t pid); /* the process at the other end of its socket */
weft_status_t weft__shm_process_meet(struct shm_lane *lane, const struct shm_hello *hello,
                                     const int *fds);
void weft__shm_process_put(struct shm_lane *lane);
/* The worker that connects: its doorbell, its tx slot and its eventfd. */
weft_status_t weft__shm_meet(struct shm_lane *lane, const struct shm_hello *hello, int *fds);

#endif
