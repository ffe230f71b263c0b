/* An object whose association has ended works again with another resource. */
#include "shared.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static int handled, lost;
static void on_message(weft_ep_t *ep, weft_am_t *am, void *arg) {
    handled++;
}
static void on_lost(void *object, weft_status_t status, void *arg) {
    lost += status == WEFT_ERR_RESOURCE_LOST;
}

static weft_status_t take(struct sharing *s, weft_object_t type, weft_resource_t *resource,
                          void *object) {
    weft_associate_params_t params = {.resource = resource, .on_lost = on_lost};
    return weft_associate_resources(s->context, type, &params, object);
}

/* Takes the object back from the resource in good order, or by a loss. */
static void part(struct sharing *s, weft_object_t type, weft_resource_t *resource, void *object,
                 bool by_loss) {
    struct tally done = {0};
    const char *state = by_loss ? "LOST" : "DISASSOCIATED";
    if (by_loss) {
        lost = 0;
        weft_resource_lose(resource);
        UNTIL(&s->two, lost == 1);
    }
    weft_status_t st = weft_disassociate_resources(resource, object, OP(&done));
    CHECK(st >= 0);
    UNTIL(&s->two, st == WEFT_OK || done.calls);
    if (done.calls) CHECK_EQ(done.status, by_loss ? WEFT_ERR_RESOURCE_LOST : WEFT_OK);
    CHECK_EQ(strcmp(weft_association_state(s->context, type, object), state), 0);
    CHECK_EQ(weft_resource_release(resource), 0);
}

TEST(an_endpoint_resumes_over_another) {
    struct sharing s;
    weft_ep_t *ep, *other;
    char address[256];
    size_t len = sizeof address;
    handled = 0;
    share_up(&s, "shm,tcp");
    share_dial(&s);
    CHECK_EQ(weft_worker_address(s.library[1], address, &len), 0);
    CHECK_EQ(weft_connect_address(s.library[0], address, len, NULL, &other), 0);
    CHECK_EQ(weft_am_handler_set(s.library[1], 3, on_message, NULL), 0);
    CHECK_EQ(weft_connect(s.library[0], NULL, &(weft_ep_params_t){.associated = 1}, &ep), 0);
    weft_ep_set_user(ep, &s);
    for (int i = 0; i < 6; i++) {
        weft_ep_t *set[1] = {i & 1 ? other : s.ep};
        weft_resource_value_t value = VALUE(WEFT_RES_ENDPOINT_SET, set);
        weft_resource_t *resource = describe(WEFT_RESOURCE_ENDPOINTS, &value, 1);
        CHECK_EQ(take(&s, WEFT_OBJECT_ENDPOINT, resource, ep), 0);
        CHECK(weft_am_send(ep, 3, NULL, 0, &(weft_iov_t){"x", 1}, 1, NULL) >= 0);
        UNTIL(&s.two, handled == i + 1);
        part(&s, WEFT_OBJECT_ENDPOINT, resource, ep, i >= 3);
        CHECK_EQ(weft_am_send(ep, 3, NULL, 0, NULL, 0, NULL),
                 i >= 3 ? WEFT_ERR_RESOURCE_LOST : WEFT_ERR_DISASSOCIATED);
        CHECK(weft_ep_user(ep) == &s);
    }
    CHECK_EQ(weft_ep_close(ep, WEFT_CLOSE_FLUSH, NULL), 0);
    share_down(&s);
}

TEST(a_region_resumes_with_another_segment_and_another_key) {
    struct sharing s;
    char key[3][WEFT_RKEY_MAX];
    size_t len[3];
    uint64_t bytes = 4096;
    weft_mem_t *mem;
    weft_mem_params_t params = {.rights = WEFT_MEM_ALL, .associated = 1};
    share_up(&s, "shm");
    CHECK_EQ(weft_mem_register(s.library[1], NULL, 0, &params, &mem), 0);
    for (int i = 0; i < 3; i++) {
        int fd = memfd_create("segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        CHECK(ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
        weft_resource_value_t values[] = {VALUE(WEFT_RES_MEMORY_FD, fd),
                                          VALUE(WEFT_RES_MEMORY_LENGTH, bytes)};
        weft_resource_t *resource = describe(WEFT_RESOURCE_SEGMENT, values, 2);
        weft_mem_info_t info;
        len[i] = sizeof key[i];
        CHECK_EQ(take(&s, WEFT_OBJECT_MEMORY, resource, mem), 0);
        CHECK_EQ(weft_mem_pack(mem, key[i], &len[i]), 0);
        CHECK_EQ(weft_mem_describe(mem, &info), 0);
        strcpy(info.base, "in the segment");
        char seen[16] = "";
        CHECK_EQ(pread(fd, seen, sizeof seen, 0), sizeof seen);
        CHECK(strcmp(seen, "in the segment") == 0);
        CHECK(i == 0 || len[i] != len[i - 1] || memcmp(key[i], key[i - 1], len[i]) != 0);
        part(&s, WEFT_OBJECT_MEMORY, resource, mem, i == 1);
        CHECK_EQ(weft_mem_pack(mem, key[i], &len[i]),
                 i == 1 ? WEFT_ERR_RESOURCE_LOST : WEFT_ERR_DISASSOCIATED);
        close(fd);
    }
    CHECK_EQ(weft_mem_release(mem, NULL), 0);
    share_down(&s);
}

static int n_ready;
static void on_ready(weft_team_t *team, weft_status_t status, void *arg) {
    n_ready += status == WEFT_OK;
}

static void join_again(struct sharing *s, weft_team_t *team[2], weft_ep_t *set[2][2],
                       weft_resource_t *resource[2]) {
    double in[2] = {1, 2}, out[2] = {0, 0};
    n_ready = 0;
    for (int i = 0; i < 2; i++) {
        weft_resource_value_t value = {WEFT_RES_ENDPOINT_SET, set[i], sizeof set[i]};
        resource[i] = describe(WEFT_RESOURCE_ENDPOINTS, &value, 1);
        CHECK_EQ(take(s, WEFT_OBJECT_TEAM, resource[i], team[i]), 0);
    }
    UNTIL(&s->two, n_ready == 2);
    for (int i = 0; i < 2; i++)
        CHECK(weft_allreduce(team[i], &in[i], &out[i], 1, WEFT_FLOAT64, WEFT_SUM, NULL) >= 0);
    UNTIL(&s->two, out[0] == 3 && out[1] == 3);
    for (int i = 0; i < 20; i++) two_turn(&s->two);
}

TEST(a_team_resumes_with_another_exchange) {
    struct sharing s;
    weft_ep_t *set[2][2] = {{NULL, NULL}, {NULL, NULL}};
    weft_team_t *team[2];
    weft_resource_t *resource[2];
    share_up(&s, "shm");
    connect_libraries(&s, set);
    for (int i = 0; i < 2; i++) {
        weft_team_params_t params = {.on_ready = on_ready, .associated = 1};
        CHECK_EQ(weft_team_create(s.library[i], &params, &team[i]), 0);
    }
    for (int round = 0; round < 3; round++) {
        struct tally done = {0};
        join_again(&s, team, set, resource);
        lost = 0;
        if (round == 1)
            for (int i = 0; i < 2; i++) weft_resource_lose(resource[i]);
        UNTIL(&s.two, lost == (round == 1 ? 2 : 0));
        int due = 0;
        for (int i = 0; i < 2; i++)
            due += weft_disassociate_resources(resource[i], team[i], OP(&done)) == WEFT_IN_PROGRESS;
        UNTIL(&s.two, done.calls == due);
        CHECK_EQ(weft_barrier(team[0], NULL),
                 round == 1 ? WEFT_ERR_RESOURCE_LOST : WEFT_ERR_DISASSOCIATED);
        for (int i = 0; i < 2; i++) CHECK_EQ(weft_resource_release(resource[i]), 0);
    }
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_team_close(team[i], NULL), 0);
    share_down(&s);
}

/* The library's worker loses what it works by, and its endpoint and its region with it. */
TEST(objects_lose_their_resources_with_their_worker) {
    struct sharing s;
    weft_ep_t *ep;
    weft_mem_t *mem;
    static char memory[4096];
    char *base = memory;
    uint64_t bytes = sizeof memory;
    share_up(&s, "shm");
    share_dial(&s);
    CHECK_EQ(weft_connect(s.library[0], NULL, &(weft_ep_params_t){.associated = 1}, &ep), 0);
    weft_mem_params_t params = {.rights = WEFT_MEM_ALL, .associated = 1};
    CHECK_EQ(weft_mem_register(s.library[0], NULL, 0, &params, &mem), 0);
    weft_resource_value_t set = VALUE(WEFT_RES_ENDPOINT_SET, s.ep);
    weft_resource_value_t values[] = {VALUE(WEFT_RES_MEMORY_BASE, base),
                                      VALUE(WEFT_RES_MEMORY_LENGTH, bytes)};
    weft_resource_t *endpoints = describe(WEFT_RESOURCE_ENDPOINTS, &set, 1);
    weft_resource_t *region = describe(WEFT_RESOURCE_MEMORY, values, 2);
    CHECK_EQ(take(&s, WEFT_OBJECT_ENDPOINT, endpoints, ep), 0);
    CHECK_EQ(take(&s, WEFT_OBJECT_MEMORY, region, mem), 0);
    lost = 0;
    weft_resource_lose(s.resource[0]);
    weft_resource_info_t a = {.n_users = 1}, b = {.n_users = 1}, c = {.n_users = 1};
    UNTIL(&s.two, weft_resource_info(s.resource[0], &a) == 0 && a.n_users == 0 &&
                      weft_resource_info(endpoints, &b) == 0 && b.n_users == 0 &&
                      weft_resource_info(region, &c) == 0 && c.n_users == 0);
    CHECK_EQ(lost, 2); /* their handles are gone; those of the two resources are not lost */
    CHECK(b.status == WEFT_OK && c.status == WEFT_OK);
    CHECK_EQ(weft_worker_flush(s.library[0], NULL), WEFT_ERR_RESOURCE_LOST);
    CHECK_EQ(weft_resource_release(endpoints), 0);
    CHECK_EQ(weft_resource_release(region), 0);
    share_down(&s);
}
