#include "protocols.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "../json/json.h"
#include "pair.h"

static void print_size(char *to, size_t room, size_t size) {
    if (size == SIZE_MAX)
        snprintf(to, room, "on");
    else
        snprintf(to, room, "%zu", size);
}

static void print_row(const weft_protocol_info_t *p) {
    char from[24], to[24];
    print_size(from, sizeof from, p->from);
    print_size(to, sizeof to, p->to);
    printf("  %9s %s %-9s %-18s %10.2f to %10.2f us %7.2f GB/s  ", from,
           p->to == SIZE_MAX ? "and" : "to ", to, p->name, p->from_ns / 1e3, p->to_ns / 1e3,
           p->bandwidth / 1e9);
    if (p->other)
        printf("next best for the last: %s, %.2f us", p->other, p->other_ns / 1e3);
    else
        printf("the only way");
    printf("%s%s\n", p->forced ? " (begins at rendezvous.threshold)" : "",
           p->exposed      ? " (of messages out of exposed memory)"
           : p->exposed_to ? " (of messages that are offered, into memory exposed for writing)"
                           : "");
}

static const char *yes_or_no(const weft_transport_info_t *t, const char *capability) {
    for (unsigned bit = 0; weft_capability_name(bit); bit++)
        if (strcmp(weft_capability_name(bit), capability) == 0)
            return t->capabilities >> bit & 1 ? "yes" : "no";
    return "no";
}

static void print_transport(weft_worker_t *worker, size_t index, const weft_transport_info_t *t) {
    weft_protocol_info_t p;
    printf("protocols of %s (overhead %.0f ns, latency %.0f ns, bandwidth %.2f GB/s, land %s, bulk "
           "get %s)\n",
           t->name, t->overhead_ns, t->latency_ns, t->bandwidth / 1e9, yes_or_no(t, "place"),
           yes_or_no(t, "bulk_get"));
    for (size_t i = 0; weft_worker_protocol(worker, index, i, &p) == WEFT_OK; i++) print_row(&p);
}

static void print_calibration(weft_worker_t *worker) {
    weft_calibration_info_t c;
    for (size_t i = 0; weft_worker_calibration(worker, i, &c) == WEFT_OK; i++) {
        if (i == 0) printf("this machine (%s)\n", c.origin);
        printf("  %-13s %14.0f %-4s %s\n", c.name, c.value, c.unit, c.help);
    }
}

static int complain_closed(const char *name) {
    fprintf(stderr, "weft-info: no transport %s is open\n", name);
    return 0;
}

static int print_named(weft_worker_t *worker, const char *name) {
    weft_transport_info_t t;
    int found = 0;
    for (size_t i = 0; weft_worker_transport(worker, i, &t) == WEFT_OK; i++) {
        if (name && strcmp(t.name, name) != 0) continue;
        print_transport(worker, i, &t);
        found = 1;
    }
    return found || complain_closed(name ? name : "at all");
}

static void print_pair(weft_worker_t *worker, const struct info_pair *pair) {
    weft_transport_info_t t;
    printf("%s: by %s to %s, worker %016llx; %u %s, the one in use %s\n", pair->uri,
           pair->ep.transport, pair->ep.peer, (unsigned long long)pair->ep.peer_worker,
           pair->ep.n_lanes, pair->ep.n_lanes == 1 ? "lane" : "lanes",
           pair->ep.fast ? "of those of which there are few" : "of those that scale");
    printf("the peer's memory: %s\n", pair->ep.one_sided);
    if (weft_worker_transport(worker, pair->transport, &t) == WEFT_OK)
        print_transport(worker, pair->transport, &t);
}

static int is_uri(const char *name) {
    return strstr(name, "://") != NULL;
}

int info_protocols(weft_worker_t *worker, char *const *names, int n_names) {
    int found = 1;
    print_calibration(worker);
    if (n_names == 0) return print_named(worker, NULL);
    for (int i = 0; i < n_names; i++)
        found &= is_uri(names[i]) ? info_pair(worker, names[i], print_pair)
                                  : print_named(worker, names[i]);
    return found;
}

static void json_row(const weft_protocol_info_t *p) {
    printf("{\"name\":");
    json_text(stdout, p->name);
    printf(",\"from\":%zu,\"to\":", p->from);
    if (p->to == SIZE_MAX)
        printf("null");
    else
        printf("%zu", p->to);
    printf(",\"from_ns\":%.0f,\"to_ns\":%.0f,\"bandwidth\":%.0f,\"forced\":%s,\"exposed\":%s,"
           "\"exposed_to\":%s}",
           p->from_ns, p->to_ns, p->bandwidth, p->forced ? "true" : "false",
           p->exposed ? "true" : "false", p->exposed_to ? "true" : "false");
}

static void json_rows(weft_worker_t *worker, size_t transport) {
    weft_protocol_info_t p;
    putchar('[');
    for (size_t k = 0; weft_worker_protocol(worker, transport, k, &p) == WEFT_OK; k++) {
        if (k > 0) putchar(',');
        json_row(&p);
    }
    putchar(']');
}

static int is_open(weft_worker_t *worker, const char *name) {
    weft_transport_info_t t;
    for (size_t i = 0; weft_worker_transport(worker, i, &t) == WEFT_OK; i++)
        if (strcmp(t.name, name) == 0) return 1;
    return complain_closed(name);
}

/* Among the transports that are named, if any is. */
static int is_asked_for(const char *transport, char *const *names, int n_names) {
    int named = 0;
    for (int i = 0; i < n_names; i++) {
        if (is_uri(names[i])) continue;
        if (strcmp(names[i], transport) == 0) return 1;
        named = 1;
    }
    return !named;
}

int info_protocols_json(weft_worker_t *worker, char *const *names, int n_names) {
    weft_transport_info_t t;
    int found = 1, n = 0;
    putchar('{');
    for (size_t i = 0; weft_worker_transport(worker, i, &t) == WEFT_OK; i++) {
        if (!is_asked_for(t.name, names, n_names)) continue;
        if (n++ > 0) putchar(',');
        json_text(stdout, t.name);
        putchar(':');
        json_rows(worker, i);
    }
    putchar('}');
    for (int i = 0; i < n_names; i++) found &= is_uri(names[i]) || is_open(worker, names[i]);
    return found;
}

static void json_pair(weft_worker_t *worker, const struct info_pair *pair) {
    const char *const texts[][2] = {{"{\"uri\":", pair->uri},
                                    {",\"transport\":", pair->ep.transport},
                                    {",\"peer\":", pair->ep.peer},
                                    {",\"one_sided\":", pair->ep.one_sided}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        fputs(texts[i][0], stdout);
        json_text(stdout, texts[i][1]);
    }
    printf(",\"lanes\":%u,\"fast\":%s,\"protocols\":", pair->ep.n_lanes,
           pair->ep.fast ? "true" : "false");
    json_rows(worker, pair->transport);
    putchar('}');
}

int info_pairs_json(weft_worker_t *worker, char *const *names, int n_names) {
    int found = 1, n = 0;
    putchar('[');
    for (int i = 0; i < n_names; i++) {
        if (!is_uri(names[i])) continue;
        if (n++ > 0) putchar(',');
        int answered = info_pair(worker, names[i], json_pair);
        if (!answered) fputs("null", stdout);
        found &= answered;
    }
    putchar(']');
    return found;
}
