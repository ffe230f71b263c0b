/* Where an endpoint leads can be asked, and who connects to a peer that is connected opens no
 * second connection. */
#include <tests/support/lane_switch.h>

static weft_status_t leads_to(weft_ep_t *ep, weft_worker_t *worker) {
    char address[256];
    size_t len = sizeof address;
    CHECK_EQ(weft_worker_address(worker, address, &len), 0);
    return weft_ep_is_connected(ep, address, len);
}

static weft_ep_t *by_address(struct pair *p, weft_worker_t *from, weft_worker_t *to) {
    char address[256];
    size_t len = sizeof address;
    weft_ep_t *ep;
    int ready = p->ready;
    weft_ep_params_t params = {.on_ready = on_ready, .on_error = on_error, .arg = p};
    CHECK_EQ(weft_worker_address(to, address, &len), 0);
    CHECK_EQ(weft_connect_address(from, address, len, &params, &ep), 0);
    CHECK_EQ(leads_to(ep, to), ready < p->ready ? WEFT_OK : WEFT_IN_PROGRESS);
    UNTIL(p, p->ready > ready);
    CHECK_EQ(leads_to(ep, to), WEFT_OK);
    return ep;
}

static uint32_t sharing(weft_ep_t *ep) {
    weft_ep_info_t info;
    CHECK_EQ(weft_ep_describe(ep, &info), 0);
    return info.n_endpoints;
}

TEST(an_endpoint_reports_whether_it_leads_to_a_worker) {
    struct pair p;
    pair_begin(&p, "tcp", NULL, 0, NULL, 0);
    pair_up(&p, NULL);
    CHECK_EQ(leads_to(p.flow[0].ep, p.worker[1]), WEFT_OK);
    CHECK_EQ(leads_to(p.flow[1].ep, p.worker[0]), WEFT_OK);
    CHECK_EQ(leads_to(p.flow[0].ep, p.worker[0]), WEFT_ERR_NOT_FOUND);
    CHECK_EQ(weft_ep_is_connected(p.flow[0].ep, "no address", 10), WEFT_ERR_ADDRESS);
    CHECK_EQ(weft_ep_is_connected(p.flow[0].ep, NULL, 10), WEFT_ERR_INVALID_PARAM);

    weft__link_lose(link_of(&p, 0), WEFT_ERR_TIMED_OUT);
    UNTIL(&p, p.errors == 2);
    CHECK_EQ(leads_to(p.flow[0].ep, p.worker[1]), WEFT_ERR_NOT_FOUND);
    p.flow[0].rkey = p.flow[1].rkey = NULL;
    pair_end(&p);
}

static void count_closed(weft_status_t status, void *arg) {
    ++*(int *)arg;
}

/* The connection stays a while, and other endpoints use it; this one does not any more. */
TEST(an_endpoint_that_was_lost_or_closes_leads_to_no_worker) {
    struct pair p;
    int closed[2] = {0};
    pair_begin(&p, "tcp", NULL, 0, NULL, 0);
    pair_up(&p, NULL);
    weft_ep_t *flow = p.flow[1].ep, *ep = by_address(&p, p.worker[0], p.worker[1]);
    UNTIL(&p, p.flow[1].ep != flow);
    weft_ep_t *back = p.flow[1].ep;
    p.flow[1].ep = flow;
    CHECK_EQ(weft_ep_close(back, WEFT_CLOSE_FLUSH,
                           &(weft_op_t){.done = count_closed, .arg = &closed[0]}),
             WEFT_IN_PROGRESS);
    CHECK_EQ(leads_to(back, p.worker[0]), WEFT_OK);
    UNTIL(&p, p.errors == 1 && closed[0]);
    CHECK_EQ(leads_to(ep, p.worker[1]), WEFT_ERR_NOT_FOUND);
    CHECK_EQ(leads_to(p.flow[0].ep, p.worker[1]), WEFT_OK);
    CHECK_EQ(
        weft_ep_close(ep, WEFT_CLOSE_FLUSH, &(weft_op_t){.done = count_closed, .arg = &closed[1]}),
        WEFT_IN_PROGRESS);
    CHECK_EQ(leads_to(ep, p.worker[1]), WEFT_ERR_NOT_FOUND);
    UNTIL(&p, closed[1]);
    p.errors = 0;
    pair_end(&p);
}

TEST(a_link_dialed_by_uri_is_joined_by_address) {
    struct pair p;
    pair_begin(&p, "tcp", NULL, 0, NULL, 0);
    pair_up(&p, "tcp://127.0.0.1:0");
    CHECK_EQ(leads_to(p.flow[0].ep, p.worker[1]), WEFT_OK);
    CHECK_EQ(sharing(by_address(&p, p.worker[0], p.worker[1])), 2);
    CHECK_EQ(sharing(by_address(&p, p.worker[1], p.worker[0])), 3);
    pair_end(&p);
}

static const weft_setting_t settings[] = {{"lanes.switch", "on"}, {"lanes.min_rate", "1000g"}};

/* From tcp to shared memory and back: a peer that comes meanwhile joins it, by either. */
TEST(a_link_is_joined_whatever_lane_it_is_on) {
    struct pair p;
    pair_begin(&p, "shm,tcp", settings, 2, NULL, 0);
    p.kinds = FLOW_AM;
    pair_up(&p, "tcp://127.0.0.1:0");
    CHECK_EQ(pair_join(&p, 0, "shm", true), 0);
    UNTIL(&p, is_away(&p, 0));
    CHECK_EQ(sharing(by_address(&p, p.worker[0], p.worker[1])), 2);
    CHECK_EQ(sharing(by_address(&p, p.worker[1], p.worker[0])), 3);
    CHECK_EQ(weft__switch_back(link_of(&p, 0)), 0);
    UNTIL(&p, both_in(&p, SWITCH_ALONE));
    pair_finish(&p);
    pair_end(&p);
}
