/* Status codes explain themselves, and say why. */
#include <errno.h>
#include <pthread.h>
#include <reactor/reactor.h>
#include <tests/harness.h>

TEST(every_status_has_a_name_and_a_sentence) {
    for (int i = 2; i >= WEFT_STATUS_LAST; i--) {
        weft_status_t status = (weft_status_t)i;
        CHECK(!strncmp(weft_status_name(status), i < 0 ? "WEFT_ERR_" : "WEFT_", i < 0 ? 9 : 5));
        CHECK(strlen(weft_status_sentence(status)) > 10);
        CHECK(weft_status_hint(status));
        for (int j = 2; j > i; j--)
            CHECK(strcmp(weft_status_name(status), weft_status_name((weft_status_t)j)));
    }
    CHECK(!strcmp(weft_status_name(WEFT_ERR_TIMED_OUT), "WEFT_ERR_TIMED_OUT"));
    CHECK(!strcmp(weft_status_name(WEFT_ERR_EXISTS), "WEFT_ERR_EXISTS"));
    CHECK(!strcmp(weft_status_name((weft_status_t)-1000), "WEFT_ERR_?"));
    CHECK(!strcmp(weft_status_name((weft_status_t)3), "WEFT_ERR_?"));
}

/* Each hint names the call, the member or the mode that helps. */
TEST(hints_of_resources_name_what_helps) {
    static const struct {
        weft_status_t status;
        const char *what;
    } hints[] = {{WEFT_ERR_NOT_ASSOCIATED, "Call weft_associate_resources"},
                 {WEFT_ERR_ALREADY_ASSOCIATED, "Call weft_disassociate_resources"},
                 {WEFT_ERR_DISASSOCIATED, "Associate another resource"},
                 {WEFT_ERR_RESOURCE_LOST, "Associate another resource"},
                 {WEFT_ERR_NOT_SHAREABLE, "WEFT_SHARE_PART"},
                 {WEFT_ERR_VERSION_MISMATCH, "leave build_id empty"},
                 {WEFT_ERR_LEASE_EXHAUSTED, "Disassociate another user"}};
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++) {
        char text[1024];
        weft_status_describe(hints[i].status, text, sizeof text);
        const char *hint = strstr(text, "hint: ");
        CHECK(hint && strstr(hint, hints[i].what));
        CHECK(strstr(hint, weft_status_hint(hints[i].status)));
    }
}

/* A listener of shm is refused for its directory, and one of tcp for its key file. */
TEST(texts_of_a_refused_place_are_true_of_each_transport) {
    CHECK(!strstr(weft_status_sentence(WEFT_ERR_INSECURE), "key"));
    CHECK(strstr(weft_status_hint(WEFT_ERR_INSECURE), "For shm: use a directory"));
    CHECK(strstr(weft_status_sentence(WEFT_ERR_AUTH), "or the key file cannot be used"));
}

TEST(description_names_the_causes_outermost_first) {
    char text[1024];
    CHECK_EQ(weft__fail(WEFT_ERR_REFUSED, "connect: errno %d", 111), WEFT_ERR_REFUSED);
    CHECK_EQ(weft__fail_in(WEFT_ERR_REFUSED, "connecting to %s", "tcp://a:1"), WEFT_ERR_REFUSED);
    size_t len = weft_status_describe(WEFT_ERR_REFUSED, text, sizeof text);
    CHECK_EQ(len, strlen(text));
    CHECK(!strncmp(text, "WEFT_ERR_REFUSED: No listener is open", 37));
    const char *outer = strstr(text, "because: connecting to tcp://a:1"),
               *inner = strstr(text, "because: connect: errno 111");
    CHECK(outer && inner && outer < inner);
    CHECK(strstr(text, "hint: "));
}

TEST(causes_of_another_status_are_not_described) {
    char text[1024];
    weft__fail(WEFT_ERR_REFUSED, "the first");
    weft_status_describe(WEFT_ERR_TIMED_OUT, text, sizeof text);
    CHECK(!strstr(text, "because"));
    weft__fail(WEFT_ERR_REFUSED, "the second");
    weft_status_describe(WEFT_ERR_REFUSED, text, sizeof text);
    CHECK(strstr(text, "the second") && !strstr(text, "the first"));
    weft__fail_in(WEFT_ERR_IO, "the third");
    weft_status_describe(WEFT_ERR_IO, text, sizeof text);
    CHECK(strstr(text, "the third") && !strstr(text, "the second"));
}

/* A failure without a text of its own has no cause, or what it asked for: never that of another. */
TEST(causes_of_an_earlier_failure_of_that_status_are_not_described) {
    char text[1024];
    weft_context_t *context;
    weft_setting_info_t info;
    weft__fail(WEFT_ERR_NO_MEMORY, "the first");
    weft__alloc_fail_at(1);
    CHECK_EQ(weft_context_create(NULL, &context), WEFT_ERR_NO_MEMORY);
    weft__alloc_fail_at(0);
    weft_status_describe(WEFT_ERR_NO_MEMORY, text, sizeof text);
    CHECK(!strstr(text, "the first"));
    CHECK_EQ(weft_context_create(NULL, &context), WEFT_OK);
    weft__fail(WEFT_ERR_NOT_FOUND, "the second");
    CHECK_EQ(weft_context_setting(context, 100000, &info), WEFT_ERR_NOT_FOUND);
    weft_status_describe(WEFT_ERR_NOT_FOUND, text, sizeof text);
    CHECK(!strstr(text, "the second"));
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
}

TEST(description_fits_any_buffer) {
    char whole[4096], text[4096];
    weft__fail(WEFT_ERR_PROTOCOL, "%0900d", 7);
    for (int i = 0; i < 20; i++) weft__fail_in(WEFT_ERR_PROTOCOL, "layer %d", i);
    size_t len = weft_status_describe(WEFT_ERR_PROTOCOL, whole, sizeof whole);
    CHECK(len < sizeof whole && strlen(whole) == len);
    CHECK(strstr(whole, "layer 19") && strstr(whole, "layer 0\n"));
    CHECK_EQ(weft_status_describe(WEFT_ERR_PROTOCOL, NULL, 0), len);
    for (size_t size = 1; size <= len + 1; size++) {
        memset(text, 'x', sizeof text);
        CHECK_EQ(weft_status_describe(WEFT_ERR_PROTOCOL, text, size), len);
        CHECK_EQ(strlen(text), size - 1);
        CHECK(!memcmp(text, whole, size - 1));
        CHECK_EQ(text[size], 'x');
    }
}

static void *describe_elsewhere(void *text) {
    weft_status_describe(WEFT_ERR_IO, text, 1024);
    return NULL;
}

TEST(causes_belong_to_the_thread) {
    char text[1024];
    pthread_t thread;
    weft__fail(WEFT_ERR_IO, "mine");
    pthread_create(&thread, NULL, describe_elsewhere, text);
    pthread_join(thread, NULL);
    CHECK(!strstr(text, "mine"));
}

TEST(version_is_of_three_numbers) {
    int a, b, c;
    CHECK_EQ(sscanf(weft_version(), "%d.%d.%d", &a, &b, &c), 3);
    CHECK_EQ(a, WEFT_VERSION_MAJOR);
}

TEST(what_ran_out_is_found_by_errno_wherever_it_was_met) {
    CHECK_EQ(weft__errno_status(EMFILE), WEFT_ERR_NO_FDS);
    CHECK_EQ(weft__errno_status(ENFILE), WEFT_ERR_NO_FDS);
    CHECK_EQ(weft__errno_status(ENOMEM), WEFT_ERR_NO_MEMORY);
    CHECK_EQ(weft__errno_status(ENOBUFS), WEFT_ERR_NO_MEMORY);
    CHECK_EQ(weft__errno_status(ENOSPC), WEFT_ERR_NO_MEMORY);
    CHECK_EQ(weft__errno_status(ECONNREFUSED), WEFT_ERR_REFUSED);
    CHECK_EQ(weft__errno_status(EPIPE), WEFT_ERR_PEER_FAILED);
    CHECK_EQ(weft__errno_status(EADDRINUSE), WEFT_ERR_EXISTS);
    CHECK_EQ(weft__errno_status(EINVAL), WEFT_ERR_IO);
}
