/* A program that was compiled with another version of the headers: what it is given fits its own
 * structs, and what it asks for may be longer than a struct of ours. */
#include <tests/support/worker_pair.h>

#include <weft/collective.h>
#include <weft/resource.h>

/* A struct of the program's, of any size, with a fence behind it. */
enum { FENCE = 0xa5, ROOM = 1024, FIRST = 8 /* bytes of the first field or fields of each */ };
static unsigned char given[2 * ROOM];

static void clear_given(void) {
    memset(given, FENCE, sizeof given);
}

static bool is_all(size_t from, size_t to, unsigned char byte) {
    for (size_t i = from; i < to; i++)
        if (given[i] != byte) return false;
    return true;
}

/* `call` writes a struct of `known` bytes here, but for one of `size` bytes at the program. */
#define FITS(known, call)                                               \
    do {                                                                \
        unsigned char first[FIRST];                                     \
        size_t size = (known);                                          \
        void *info_p = given;                                           \
        clear_given();                                                  \
        CHECK_EQ(call, WEFT_OK);                                        \
        CHECK(is_all(size, sizeof given, FENCE));                       \
        CHECK(!is_all(0, FIRST, FENCE));                                \
        memcpy(first, given, FIRST);                                    \
        size = (known) / 2;                                             \
        clear_given();                                                  \
        CHECK_EQ(call, WEFT_OK);                                        \
        CHECK(memcmp(given, first, FIRST) == 0);                        \
        CHECK(is_all(size, sizeof given, FENCE));                       \
        size = (known) + 64;                                            \
        clear_given();                                                  \
        CHECK_EQ(call, WEFT_OK);                                        \
        CHECK(memcmp(given, first, FIRST) == 0);                        \
        CHECK(is_all(known, size, 0) && is_all(size, ROOM * 2, FENCE)); \
        size = 0;                                                       \
        clear_given();                                                  \
        CHECK_EQ(call, WEFT_OK);                                        \
        CHECK(is_all(0, sizeof given, FENCE));                          \
    } while (0)

TEST(an_output_has_the_size_that_the_program_knows) {
    struct two t;
    weft_team_t *team;
    weft_mem_t *mem;
    weft_rkey_t *rkey;
    weft_resource_t *resource;
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    static char memory[4096];
    two_up(&t, "shm");
    CHECK_EQ(weft_team_create_wait(t.a, weft_self_exchange(), &team), WEFT_OK);
    CHECK_EQ(weft_mem_alloc(two_b(&t), 4096, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &mem),
             WEFT_OK);
    CHECK_EQ(weft_mem_pack(mem, key, &len), WEFT_OK);
    CHECK_EQ(weft_rkey_unpack(t.ep, key, len, &rkey), WEFT_OK);
    CHECK_EQ(weft_resource_export(WEFT_OBJECT_WORKER, t.a, WEFT_RESOURCE_WORKER, NULL, &resource),
             WEFT_OK);

    FITS(sizeof(weft_setting_info_t), weft_context_setting_sized(size, t.context, 0, info_p));
    FITS(sizeof(weft_ep_info_t), weft_ep_describe_sized(size, t.ep, info_p));
    FITS(sizeof(weft_mem_info_t), weft_mem_describe_sized(size, mem, info_p));
    FITS(sizeof(weft_mem_info_t), weft_mem_detect_sized(size, memory, info_p));
    FITS(sizeof(weft_rkey_info_t), weft_rkey_describe_sized(size, rkey, info_p));
    FITS(sizeof(weft_memory_info_t), weft_worker_memory_sized(size, t.a, 0, info_p));
    FITS(sizeof(weft_memory_info_t), weft_worker_memory_sized(size, t.a, 1, info_p));
    FITS(sizeof(weft_resource_info_t), weft_resource_info_sized(size, resource, info_p));
    FITS(sizeof(weft_team_info_t), weft_team_describe_sized(size, team, info_p));
    FITS(sizeof(weft_team_member_t), weft_team_member_sized(size, team, 0, info_p));
    FITS(sizeof(weft_transport_info_t), weft_worker_transport_sized(size, t.a, 0, info_p));
    FITS(sizeof(weft_worker_info_t), weft_worker_describe_sized(size, t.a, info_p));
    FITS(sizeof(weft_protocol_info_t), weft_worker_protocol_sized(size, t.a, 0, 0, info_p));
    FITS(sizeof(weft_calibration_info_t), weft_worker_calibration_sized(size, t.a, 0, info_p));
    FITS(sizeof(weft_rma_attributes_t), weft_ep_rma_attributes_sized(size, t.ep, rkey, info_p));

    CHECK_EQ(weft_resource_release(resource), WEFT_OK);
    weft_rkey_release(rkey);
    CHECK_EQ(weft_team_close_wait(team), WEFT_OK);
    two_down(&t);
}

/* A type's parameters of a newer version: what we do not know must be zero. */
TEST(a_type_of_a_newer_version_is_refused_for_what_is_not_known) {
    struct two t;
    weft_team_t *team;
    weft_datatype_t type;
    struct {
        weft_datatype_params_t known;
        uint64_t later;
    } params = {{.size = 12}, 0};
    two_up(&t, "shm");
    CHECK_EQ(weft_team_create_wait(t.a, weft_self_exchange(), &team), WEFT_OK);
    CHECK_EQ(weft_datatype_create_sized(sizeof params, team, &params.known, &type), WEFT_OK);
    CHECK_EQ(weft_datatype_size(WEFT_INT32), 4);
    params.later = 1;
    CHECK_EQ(weft_datatype_create_sized(sizeof params, team, &params.known, &type),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_team_close_wait(team), WEFT_OK);
    two_down(&t);
}

/* ---- the size of what is to be written ------------------------------------------------------- */

static weft_status_t address_of(void *worker, void *buf, size_t *len_p) {
    return weft_worker_address(worker, buf, len_p);
}
static weft_status_t key_of(void *mem, void *buf, size_t *len_p) {
    return weft_mem_pack(mem, buf, len_p);
}
static weft_status_t invitation_of(void *team, void *buf, size_t *len_p) {
    return weft_team_invite(team, buf, len_p);
}

static void ask_size(weft_status_t (*write)(void *object, void *buf, size_t *len_p), void *object) {
    size_t needed = 0, len;
    CHECK_EQ(write(object, NULL, &needed), WEFT_ERR_TRUNCATED);
    CHECK(needed > 0 && needed <= ROOM);
    len = needed;
    CHECK_EQ(write(object, given, &len), WEFT_OK);
    CHECK_EQ(len, needed);
    len = needed - 1;
    CHECK_EQ(write(object, given, &len), WEFT_ERR_TRUNCATED);
    CHECK_EQ(len, needed);
    CHECK_EQ(write(object, NULL, &len), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(len, needed);
}

TEST(a_null_buffer_of_no_bytes_asks_for_the_size) {
    struct two t;
    weft_team_t *team;
    weft_mem_t *mem;
    two_up(&t, "shm");
    CHECK_EQ(weft_team_create_wait(t.a, weft_self_exchange(), &team), WEFT_OK);
    CHECK_EQ(weft_mem_alloc(t.a, 4096, &(weft_mem_params_t){.rights = WEFT_MEM_READ}, &mem),
             WEFT_OK);
    ask_size(address_of, t.a);
    ask_size(key_of, mem);
    ask_size(invitation_of, team);
    CHECK_EQ(weft_team_close_wait(team), WEFT_OK);
    two_down(&t);
}
