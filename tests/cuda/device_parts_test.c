/* Tagged messages that come in parts, into device memory. */
#include <tests/cuda/patterns.h>
#include <tests/support/raw_peer.h>

enum { LEN = 60000, PART = 4000 };

static struct raw raw;
static char whole[LEN];

static void send_part(size_t offset) {
    char bytes[WIRE_TAG_PART_HEAD + PART];
    weft__wire_tag_part(bytes,
                        (struct wire_tag_part){.ep = raw.half, .number = 3, .offset = offset});
    memcpy(bytes + WIRE_TAG_PART_HEAD, whole + offset, PART);
    CHECK(send_msg(&raw, WIRE_TAG_PART, bytes, sizeof bytes));
}

static void send_begin(void) {
    char bytes[WIRE_TAG_BEGIN_HEAD + PART];
    weft__wire_tag_begin(
        bytes, (struct wire_tag_begin){.tag = 5, .ep = raw.half, .number = 3, .len = LEN});
    memcpy(bytes + WIRE_TAG_BEGIN_HEAD, whole, PART);
    CHECK(send_msg(&raw, WIRE_TAG_BEGIN, bytes, sizeof bytes));
}

/* The receive ends when the device has the bytes, whether it was posted before the first part or
 * behind it. */
TEST_WIRES(a_message_in_parts_comes_to_device_memory) {
    for (int late = 0; late < 2; late++) {
        struct tally received = {0};
        raw_open(&raw, transport, (weft_setting_t[]){{"cuda.blocking", "1k"}}, 1);
        raw_dial(&raw, transport);
        send_hello(&raw);
        open_half(&raw);
        char *to = gpu_alloc(LEN);
        weft_iov_t iov = {to, LEN};
        pattern(whole, LEN, 9);
        if (!late)
            CHECK_EQ(weft_tag_recv(raw.t.a, 5, ~0ull, &iov, 1, NULL, OP(&received)),
                     WEFT_IN_PROGRESS);
        send_begin();
        for (int i = 0; i < 30; i++) raw_turn(&raw);
        if (late)
            CHECK_EQ(weft_tag_recv(raw.t.a, 5, ~0ull, &iov, 1, NULL, OP(&received)),
                     WEFT_IN_PROGRESS);
        for (size_t at = PART; at < LEN; at += PART) send_part(at);
        RAW_UNTIL(&raw, received.calls);
        CHECK_EQ(received.status, WEFT_OK);
        CHECK(holds(to, LEN, 9));
        gpu.release(to);
        raw_close(&raw);
    }
}
