/*
 * Payloads that go straight to where they are wanted. The owner is asked when a frame's head is here and much of it is
 * not; from then on reads fill the memory that it named, and what follows the frame goes into the ordinary buffer by
 * the same call. A landing that was stopped takes the rest of its frame to the buffer, and forgets it there.
 */
#define _GNU_SOURCE
#include "tcp.h"

#include <string.h>
#include <sys/socket.h>

static struct tcp_landing *take_landing(struct tcp_iface *iface) {
    struct tcp_landing *landing = iface->spare_landing;
    iface->spare_landing = NULL;
    return landing ? landing : weft__new(iface, struct tcp_landing);
}

static void give_landing(struct tcp_iface *iface, struct tcp_landing *landing) {
    if (iface->spare_landing)
        talloc_free(landing);
    else
        iface->spare_landing = landing;
}

/* Exactly the rest of the message must fit, or it does not land. */
static bool sound(const struct landing *to, size_t len, size_t have) {
    size_t room = 0;
    if (to->n_iov == 0 || to->n_iov > LAND_IOV || to->skip > have || to->skip > len) return false;
    for (size_t i = 0; i < to->n_iov; i++) room += to->iov[i].len;
    return room == len - to->skip;
}

/* `n` bytes fewer are to be filled. */
static void pass(struct tcp_landing *l, size_t n) {
    l->left -= n;
    while (l->at < l->end && l->iov[l->at].iov_len <= n) n -= l->iov[l->at++].iov_len;
    if (l->at == l->end) return; /* what is left is padding */
    l->iov[l->at].iov_base = (char *)l->iov[l->at].iov_base + n;
    l->iov[l->at].iov_len -= n;
}

static void copy_begun(struct tcp_landing *l, const uint8_t *from, size_t n) {
    for (unsigned i = 0; n > 0; i++) {
        size_t part = l->iov[i].iov_len < n ? l->iov[i].iov_len : n;
        if (part) memcpy(l->iov[i].iov_base, from, part);
        from += part;
        n -= part;
    }
}

/* The frame at the front of the buffer: `have` bytes of its payload are here. */
bool tcp_land(struct tcp_lane *lane, const struct tcp_frame *f, const uint8_t *payload, size_t have) {
    struct tcp_iface *iface = tcp_iface_of(lane);
    struct tcp_input *in = &lane->in;
    struct landing to;
    in->asked = true;
    struct tcp_landing *l = take_landing(iface);
    if (!l) return false; /* it comes the other way */
    if (!iface->iface.up->land(&lane->lane, f->id, payload, LAND_HEAD, f->len, &to) || !sound(&to, f->len, have)) {
        give_landing(iface, l);
        return false;
    }
    *l = (struct tcp_landing){.landed = to.landed, .arg = to.arg, .end = (unsigned)to.n_iov};
    for (size_t i = 0; i < to.n_iov; i++) l->iov[i] = (struct iovec){to.iov[i].base, to.iov[i].len};
    l->left = tcp_frame_size(f->len) - TCP_FRAME_HEAD - to.skip;
    copy_begun(l, payload + to.skip, have - to.skip);
    pass(l, have - to.skip);
    in->landing = l;
    in->begin = in->end = 0;
    if (in->buffer->n_kept) tcp_input_give_back(lane); /* what follows the frame is read to a buffer's front */
    return true;
}

/* The frame's padding, and a bit of what follows, come into the buffer; the padding is no more than 7 bytes. */
ssize_t tcp_land_read(struct tcp_lane *lane) {
    struct tcp_input *in = &lane->in;
    struct tcp_landing *l = in->landing;
    struct msghdr msg = {.msg_iov = l->iov + l->at, .msg_iovlen = l->end - l->at + 1};
    size_t payload = 0, room = in->buffer->size < TCP_LAND_BEHIND ? in->buffer->size : TCP_LAND_BEHIND;
    for (unsigned i = l->at; i < l->end; i++) payload += l->iov[i].iov_len;
    if (l->why) { /* all of the frame goes into the buffer, and no byte behind it */
        room = l->left < in->buffer->size ? l->left : in->buffer->size;
        msg.msg_iov = &l->iov[l->end];
        msg.msg_iovlen = 1;
        payload = 0;
    }
    l->iov[l->end] = (struct iovec){in->buffer->bytes, room};
    ssize_t n = recvmsg(lane->watch.fd, &msg, MSG_DONTWAIT);
    if (n <= 0) return n;
    if (l->why) {
        l->left -= (size_t)n;
        return n;
    }
    size_t into_buffer = (size_t)n > payload ? (size_t)n - payload : 0;
    size_t of_frame = (size_t)n < l->left ? (size_t)n : l->left;
    in->begin = (uint32_t)(of_frame - ((size_t)n - into_buffer));
    in->end = (uint32_t)into_buffer;
    tcp_count(lane)->tcp_landed += (size_t)n - into_buffer;
    pass(l, of_frame);
    return n;
}

bool tcp_land_done(struct tcp_lane *lane) {
    struct tcp_input *in = &lane->in;
    if (in->landing->left > 0) return false;
    tcp_land_tell(lane);
    tcp_land_forget(lane);
    in->asked = false;
    in->landed = true;
    return true;
}

void tcp_land_tell(struct tcp_lane *lane) {
    struct tcp_landing *l = lane->in.landing;
    if (!l || !l->landed) return;
    void (*landed)(struct lane *, void *, weft_status_t) = l->landed;
    l->landed = NULL;
    landed(&lane->lane, l->arg, l->why);
}

void tcp_land_forget(struct tcp_lane *lane) {
    if (lane->in.landing) give_landing(tcp_iface_of(lane), lane->in.landing);
    lane->in.landing = NULL;
}

void tcp_land_end(struct tcp_lane *lane, weft_status_t why) {
    struct tcp_landing *l = lane->in.landing;
    if (!l || !l->landed) return;
    if (l->why == WEFT_OK) l->why = why;
    tcp_lane_todo(lane, TODO_LANDED);
}

void tcp_land_stop(struct lane *l, void *arg) {
    struct tcp_lane *lane = tcp_lane(l);
    if (lane->in.landing && lane->in.landing->arg == arg) tcp_land_end(lane, WEFT_ERR_CANCELLED);
}
