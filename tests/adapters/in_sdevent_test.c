/* Two workers in one loop of sd-event, by its adapter. */
#include "pair.h"
#include <weft/adapters/sdevent.h>

struct sd_pair {
    struct pair_loop loop;
    sd_event *event;
    sd_event_source *source[2];
};

static void attach(struct pair_loop *loop, int i, weft_worker_t *worker) {
    struct sd_pair *pair = (struct sd_pair *)loop;
    CHECK(weft_sdevent_attach(pair->event, worker, &pair->source[i]) >= 0);
}

static void detach(struct pair_loop *loop, int i) {
    weft_sdevent_detach(((struct sd_pair *)loop)->source[i]);
}

static void turn(struct pair_loop *loop) {
    CHECK(sd_event_run(((struct sd_pair *)loop)->event, UINT64_MAX) >= 0);
}

static void passes(const char *transports, const char *uri) {
    struct sd_pair pair = {.loop = {attach, detach, turn}};
    CHECK(sd_event_new(&pair.event) >= 0);
    pair_passes(&pair.loop, transports, uri);
    sd_event_unref(pair.event);
}

TEST(messages_over_shm_wake_sdevent) {
    passes("shm", NULL);
}
TEST(messages_over_tcp_wake_sdevent) {
    passes("tcp", "tcp://127.0.0.1:0");
}

static int attach_to(void *event, weft_worker_t *worker) {
    sd_event_source *source;
    return weft_sdevent_attach(event, worker, &source);
}
TEST(a_worker_without_a_descriptor_is_not_attached_to_sdevent_and_why_is_returned) {
    sd_event *event;
    CHECK(sd_event_new(&event) >= 0);
    CHECK_EQ(attached_without_descriptors(attach_to, event), -EMFILE);
    sd_event_unref(event);
}
