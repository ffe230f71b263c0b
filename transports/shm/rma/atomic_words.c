/* Messages about keys on an attachment's socket: the queue that waits for room, and those that
 * arrive. */
#include "key.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

struct shm_keys *weft__shm_keys_of(struct shm_lane *lane) {
    struct shm_ext *more = weft__shm_ext(lane);
    if (!more || more->keys) return more ? more->keys : NULL;
    more->keys = weft__new(shm_iface(lane), struct shm_keys);
    if (!more->keys) return NULL;
    words_init(&more->keys->words);
    words_init(&more->keys->waiting);
    return more->keys;
}

/* ---- out ------------------------------------------------------------------------------------- */

/* False: the socket has no room. On any other error the message is lost, and the socket reports
 * its end. */
bool weft__shm_send_now(struct shm_lane *lane, const void *data, size_t len, int fd) {
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof fd)];
    } control = {.head = {.cmsg_len = CMSG_LEN(sizeof fd),
                          .cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS}};
    struct iovec iov = {(void *)data, len};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd >= 0) {
        memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
        m.msg_control = &control;
        m.msg_controllen = sizeof control;
    }
    if (lane->watch.fd < 0 || sendmsg(lane->watch.fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
        return true;
    /* No descriptor can be sent now: the peer finds it missing and does not use the grant. */
    if (fd >= 0 && errno == ETOOMANYREFS) return weft__shm_send_now(lane, data, len, -1);
    return errno != EAGAIN && errno != EINTR;
}

static bool send_word(struct shm_lane *lane, struct queued_word *word) {
    union {
        struct shm_want want;
        struct shm_serial serial;
    } message;
    size_t len = word->kind == SHM_REVOKE
                     ? weft__shm_grant_word(container_of(word, struct shm_grant, word), &message)
                     : weft__shm_key_word(container_of(word, struct shm_key, word), &message);
    return weft__shm_send_now(lane, &message, len, -1);
}

void weft__shm_watch_for_room(struct shm_lane *lane, bool wanted) {
    int events = wanted ? WATCH_READ | WATCH_WRITE : WATCH_READ;
    if (lane->watch.events && lane->watch.events != events)
        weft__aux_watch_start(lane->lane.iface->reactor, &lane->watch, events);
}

void weft__shm_words_flush(struct shm_lane *lane) {
    struct word_queue *words = shm_keys(lane) ? &shm_keys(lane)->words : NULL;
    while (words && words->first && send_word(lane, words->first)) {
        struct queued_word *word = words->first;
        words_remove(words, word);
        if (word->kind == SHM_DROP)
            weft__shm_key_sent(lane, container_of(word, struct shm_key, word));
    }
    weft__shm_watch_for_room(lane, words && words->first);
}

void weft__shm_send(struct shm_lane *lane, struct queued_word *word, uint8_t kind) {
    word->kind = kind;
    words_add(&lane->more->keys->words, word);
    if (lane->more->keys->words.first == word) weft__shm_words_flush(lane);
}

/* ---- in -------------------------------------------------------------------------------------- */

/* After our own good-bye only DROP matters: all other requests and grants are void. */
weft_status_t weft__shm_words_received(struct shm_lane *lane, const void *data, size_t len,
                                       const int *fds, int n_fds) {
    struct shm_key_word word;
    struct shm_keys *keys = weft__shm_keys_of(lane);
    weft_status_t st = weft__shm_key_decode(data, len, &word);
    if (st < 0) return st;
    if (!shm_is_up(lane) && word.kind != SHM_DROP) return WEFT_OK;
    if (!keys) {
        if (word.kind != SHM_WANT)
            return WEFT_ERR_PROTOCOL; /* this lane has asked for nothing and granted nothing */
        return weft__shm_deny(lane, word.serial, WEFT_ERR_NO_MEMORY) ? WEFT_OK : WEFT_ERR_QUOTA;
    }
    if (word.kind == SHM_WANT || word.kind == SHM_DROP)
        weft__shm_grant_received(lane, &word);
    else
        weft__shm_key_received(lane, &word, fds, n_fds);
    return keys->fault;
}
