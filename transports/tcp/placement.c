/*
 * Placement: payloads that the kernel writes straight to their destination. The lane asks the owner
 * when the head of a frame has arrived and most of the frame has not. Later reads fill the owner's
 * memory; bytes after the frame go to the ordinary buffer by the same call. A stopped placement
 * reads the rest of its frame into the buffer and discards it.
 */
#define _GNU_SOURCE
#include "tcp.h"

#include <assert.h>
#include <string.h>
#include <sys/socket.h>

static struct tcp_placement *take_placement(struct tcp_iface *iface) {
    struct tcp_placement *placement = iface->spare_placement;
    iface->spare_placement = NULL;
    return placement ? placement : weft__new(iface, struct tcp_placement);
}

static void give_placement(struct tcp_iface *iface, struct tcp_placement *placement) {
    if (iface->spare_placement)
        talloc_free(placement);
    else
        iface->spare_placement = placement;
}

/* Exactly the rest of the message must fit, or it does not land. */
static bool sound(const struct placement *to, size_t len, size_t have) {
    size_t room = 0;
    assert(to->id);
    if (to->n_iov == 0 || to->n_iov > PLACE_IOV || to->skip > have || to->skip > len) return false;
    for (size_t i = 0; i < to->n_iov; i++) room += to->iov[i].len;
    return room == len - to->skip;
}

/* `n` bytes fewer are to be filled. */
static void pass(struct tcp_placement *l, size_t n) {
    l->left -= n;
    while (l->at < l->end && l->iov[l->at].iov_len <= n) n -= l->iov[l->at++].iov_len;
    if (l->at == l->end) return; /* what is left is padding */
    l->iov[l->at].iov_base = (char *)l->iov[l->at].iov_base + n;
    l->iov[l->at].iov_len -= n;
}

static void copy_begun(struct tcp_placement *l, const uint8_t *from, size_t n) {
    for (unsigned i = 0; n > 0; i++) {
        size_t part = l->iov[i].iov_len < n ? l->iov[i].iov_len : n;
        if (part) memcpy(l->iov[i].iov_base, from, part);
        from += part;
        n -= part;
    }
}

/* The frame at the front of the buffer: `have` bytes of its payload are here. */
bool weft__tcp_place(struct tcp_lane *lane, const struct tcp_frame *f, const uint8_t *payload,
                     size_t have) {
    struct tcp_iface *iface = tcp_iface_of(lane);
    struct tcp_input *in = &lane->in;
    struct placement to;
    in->asked = true;
    struct tcp_placement *l = take_placement(iface);
    if (!l) return false; /* it comes the other way */
    if (!iface->iface.up->place(&lane->lane, f->id, payload, PLACE_HEAD, f->len, &to) ||
        !sound(&to, f->len, have)) {
        give_placement(iface, l);
        return false;
    }
    *l = (struct tcp_placement){.id = to.id, .end = (unsigned)to.n_iov};
    for (size_t i = 0; i < to.n_iov; i++) l->iov[i] = (struct iovec){to.iov[i].base, to.iov[i].len};
    l->left = tcp_frame_size(f->len) - TCP_FRAME_HEAD - to.skip;
    copy_begun(l, payload + to.skip, have - to.skip);
    pass(l, have - to.skip);
    in->placement = l;
    in->begin = in->end = 0;
    if (in->buffer->n_kept)
        weft__tcp_input_give_back(lane); /* what follows the frame is read to a buffer's front */
    return true;
}

/* The frame's padding, and a bit of what follows, come into the buffer; the padding is no more
 * than 7 bytes. */
ssize_t weft__tcp_place_read(struct tcp_lane *lane) {
    struct tcp_input *in = &lane->in;
    struct tcp_placement *l = in->placement;
    struct msghdr msg = {.msg_iov = l->iov + l->at, .msg_iovlen = l->end - l->at + 1};
    size_t payload = 0,
           room = in->buffer->size < TCP_PLACE_BEHIND ? in->buffer->size : TCP_PLACE_BEHIND;
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
    tcp_count(lane)->tcp_placed += (size_t)n - into_buffer;
    pass(l, of_frame);
    return n;
}

/* Once. */
static void tcp_placement_report(struct tcp_lane *lane, struct tcp_placement *l) {
    uint32_t id = l->id;
    if (id == 0) return;
    l->id = 0;
    lane->lane.iface->up->placed(&lane->lane, id, l->why);
}

bool weft__tcp_place_done(struct tcp_lane *lane) {
    struct tcp_input *in = &lane->in;
    if (in->placement->left > 0) return false;
    tcp_placement_report(lane, in->placement);
    weft__tcp_place_forget(lane);
    in->asked = false;
    in->placed = true;
    return true;
}

/* The job was asked for when a placement ended early. All of that one may have come since, and the
 * next have begun: what is reported is what the placement itself says. */
void weft__tcp_place_report(struct tcp_lane *lane) {
    struct tcp_placement *l = lane->in.placement;
    if (l && l->why < 0) tcp_placement_report(lane, l);
}

void weft__tcp_place_forget(struct tcp_lane *lane) {
    if (lane->in.placement) give_placement(tcp_iface_of(lane), lane->in.placement);
    lane->in.placement = NULL;
}

void weft__tcp_place_end(struct tcp_lane *lane, weft_status_t why) {
    struct tcp_placement *l = lane->in.placement;
    if (!l || l->id == 0) return;
    if (l->why == WEFT_OK) l->why = why;
    weft__tcp_lane_todo(lane, TODO_PLACED);
}

void weft__tcp_place_stop(struct lane *l, uint32_t id) {
    struct tcp_lane *lane = tcp_lane(l);
    if (lane->in.placement && lane->in.placement->id == id)
        weft__tcp_place_end(lane, WEFT_ERR_CANCELLED);
}
