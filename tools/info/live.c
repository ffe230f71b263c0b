#define _GNU_SOURCE
#include "live.h"

#include <ctype.h>
#include <dirent.h>
#include <endpoints/inspect/stats_page.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../json/json.h"

/* ---- finding pages */

/* The process as it knows itself, in a namespace of its own. */
static int own_pid(int pid) {
    char path[64], line[256];
    int own = pid;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *f = fopen(path, "re");
    if (!f) return own;
    while (fgets(line, sizeof line, f))
        if (strncmp(line, "NSpid:", 6) == 0)
            own = atoi(strrchr(line, '\t') ? strrchr(line, '\t') + 1 : line + 6);
    fclose(f);
    return own;
}

/* A page that may shrink under us is not one of Weft's. */
static int is_sealed(int fd, struct stat *st) {
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, st) == 0 && st->st_size > 0 &&
           st->st_size <= LIVE_MOST;
}

static int is_memory(int fd, int memory) {
    struct stat st, own;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && fstat(memory, &own) == 0 &&
           st.st_dev == own.st_dev;
}

/*
 * The name says what the process likes, and it may put another file in its place at any time: a
 * FIFO, a device or a terminal must not be opened for reading. O_PATH opens nothing; what it found
 * is opened when it is a memfd.
 */
static int open_page(int dir, const char *name) {
    char found[64];
    int fd = -1, path = openat(dir, name, O_PATH | O_CLOEXEC),
        memory = memfd_create("weft-info", MFD_CLOEXEC);
    snprintf(found, sizeof found, "/proc/self/fd/%d", path);
    if (path >= 0 && memory >= 0 && is_memory(path, memory))
        fd = open(found, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (memory >= 0) close(memory);
    if (path >= 0) close(path);
    return fd;
}

/* A copy of the page behind /proc/PID/fd/NAME, to be freed; NULL: it is none. */
static void *copy_page(int dir, const char *name, struct stats_view *view) {
    char target[64];
    struct stat st;
    ssize_t n = readlinkat(dir, name, target, sizeof target - 1);
    if (n < 0 || strncmp(target, "/memfd:" LIVE_NAME, strlen("/memfd:" LIVE_NAME)) != 0)
        return NULL;
    int fd = open_page(dir, name);
    if (fd < 0) return NULL;
    void *page = MAP_FAILED, *copy = NULL;
    if (is_sealed(fd, &st)) page = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (page == MAP_FAILED) return NULL;
    copy = calloc(1, (size_t)st.st_size);
    if (copy && !(weft__stats_copy(page, (size_t)st.st_size, copy) &&
                  weft__stats_read(copy, (size_t)st.st_size, view))) {
        free(copy);
        copy = NULL;
    }
    munmap(page, (size_t)st.st_size);
    return copy;
}

/* ---- for people. What a page says goes to a terminal: nothing but plain characters. */

static void plain(const char *text, size_t size, int width) {
    int n = 0;
    for (; (size_t)n < size && text[n]; n++)
        putchar(isprint((unsigned char)text[n]) ? text[n] : '?');
    while (n++ < width) putchar(' ');
}

static double seconds_ago(uint64_t then) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double now = (double)t.tv_sec + (double)t.tv_nsec / 1e9, ago = now - (double)then / 1e9;
    return ago > 0 ? ago : 0;
}

static void print_row(const struct stats_row *row) {
    char lane[LIVE_STRING + 8];
    snprintf(lane, sizeof lane, "%s%s", row->transport, row->flags & LIVE_SCARCE ? " (fast)" : "");
    printf("  %016" PRIx64 " ", row->peer);
    plain(lane, sizeof lane, 13);
    plain(row->link, LIVE_STRING, 10);
    plain(*row->negotiation ? row->negotiation : "-", LIVE_STRING, 10);
    plain(*row->switching ? row->switching : "-", LIVE_STRING, 10);
    printf("%11" PRIu64 " %11" PRIu64 " %11" PRIu64 " %5u  %6.1f s ago  ", row->score, row->sent,
           row->received, atomic_load_explicit(&row->n_endpoints, memory_order_relaxed),
           seconds_ago(row->written));
    plain(row->where, LIVE_WHERE, 0);
    puts(row->flags & LIVE_TORN ? "  (was being written)" : "");
}

static void print_links(const struct stats_view *view) {
    struct stats_row row;
    uint32_t shown = 0;
    for (uint32_t i = 0; weft__stats_row(view, i, &row); i++) {
        if (!(row.flags & LIVE_USED)) continue;
        if (shown++ == 0)
            printf("  peer             lane         link      negotiates switches      score B/s   "
                   "     sent    "
                   "received  "
                   "ends        as of        where\n");
        print_row(&row);
    }
    uint32_t all = view->head->n_links;
    if (all > shown) printf("  and %u links more\n", all - shown);
}

static void print_counters(const struct stats_view *view) {
    const char *name;
    uint64_t value;
    for (uint32_t i = 0; weft__stats_counter(view, i, &name, &value); i++) {
        if (value == 0) continue;
        printf("  ");
        plain(name, strlen(name), 24);
        printf(" %20" PRIu64 "\n", value);
    }
}

static void print_resources(const struct stats_head *h) {
    for (int i = 0; i < LIVE_RESOURCES && *h->resource[i]; i++) {
        printf("  resource: ");
        plain(h->resource[i], LIVE_RESOURCE, 0);
        puts("");
    }
}

static void print_late(const struct stats_head *h) {
    for (int i = 0; i < LIVE_LATE && *h->late[i]; i++) {
        printf("  collective: ");
        plain(h->late[i], LIVE_RESOURCE, 0);
        printf(", for %.1f s\n", seconds_ago(h->late_since[i]));
    }
}

static void print_page(const struct stats_view *view, int pid) {
    const struct stats_head *h = view->head;
    printf("process %d, worker %016" PRIx64 " ", pid, h->worker);
    plain(h->name, sizeof h->name, 0);
    printf("%sover ", *h->name ? ", " : "");
    plain(h->transports, sizeof h->transports, 0);
    printf(": %u link%s", h->n_links, h->n_links == 1 ? "" : "s");
    if (h->capacity) printf(", %u of %u places for fast lanes taken", h->n_promoted, h->capacity);
    puts("");
    print_resources(h);
    print_late(h);
    print_links(view);
    print_counters(view);
}

/* ---- for programs */

static void json_name(const char *name) {
    char copy[LIVE_RESOURCE + 1];
    snprintf(copy, sizeof copy, "%s", name);
    for (char *c = copy; *c; c++)
        if (*c & 0x80) *c = '?'; /* what is no UTF-8 is no JSON */
    json_text(stdout, copy);
}

static void json_field(const char *name, const char *text, size_t size) {
    char copy[LIVE_WHERE + 1] = "";
    memcpy(copy, text, size < LIVE_WHERE ? size : LIVE_WHERE);
    printf(",\"%s\":", name);
    json_name(copy);
}

static void json_row(const struct stats_row *row) {
    printf("{\"peer\":\"%016" PRIx64 "\",\"score\":%" PRIu64 ",\"sent\":%" PRIu64
           ",\"received\":%" PRIu64 ",\"endpoints\":%u,\"lanes\":%u,\"age_s\":%.3f",
           row->peer, row->score, row->sent, row->received,
           atomic_load_explicit(&row->n_endpoints, memory_order_relaxed), row->n_lanes,
           seconds_ago(row->written));
    printf(",\"dialed\":%s,\"promoted\":%s,\"fast\":%s,\"torn\":%s",
           row->flags & LIVE_DIALED ? "true" : "false",
           row->flags & LIVE_PROMOTED ? "true" : "false",
           row->flags & LIVE_SCARCE ? "true" : "false", row->flags & LIVE_TORN ? "true" : "false");
    json_field("transport", row->transport, LIVE_STRING);
    json_field("link", row->link, LIVE_STRING);
    json_field("negotiation", row->negotiation, LIVE_STRING);
    json_field("switching", row->switching, LIVE_STRING);
    json_field("where", row->where, LIVE_WHERE);
    putchar('}');
}

static void json_page(const struct stats_view *view, int pid) {
    const struct stats_head *h = view->head;
    struct stats_row row;
    const char *name;
    uint64_t value;
    printf("{\"pid\":%d,\"worker\":\"%016" PRIx64 "\",\"links\":%u,\"promoted\":%u,\"capacity\":%u",
           pid, h->worker, h->n_links, h->n_promoted, h->capacity);
    json_field("name", h->name, sizeof h->name);
    json_field("transports", h->transports, sizeof h->transports);
    printf(",\"resources\":[");
    for (int i = 0; i < LIVE_RESOURCES && *h->resource[i]; i++) {
        char line[LIVE_RESOURCE + 1] = "";
        memcpy(line, h->resource[i], LIVE_RESOURCE);
        if (i) putchar(',');
        json_name(line);
    }
    printf("],\"late\":[");
    for (int i = 0; i < LIVE_LATE && *h->late[i]; i++) {
        char line[LIVE_RESOURCE + 1] = "";
        memcpy(line, h->late[i], LIVE_RESOURCE);
        printf("%s{\"age_s\":%.3f,\"collective\":", i ? "," : "", seconds_ago(h->late_since[i]));
        json_name(line);
        putchar('}');
    }
    printf("],\"counters\":{");
    for (uint32_t i = 0; weft__stats_counter(view, i, &name, &value); i++) {
        if (i) putchar(',');
        json_name(name);
        printf(":%" PRIu64, value);
    }
    printf("},\"rows\":[");
    for (uint32_t i = 0, shown = 0; weft__stats_row(view, i, &row); i++) {
        if (!(row.flags & LIVE_USED)) continue;
        if (shown++) putchar(',');
        json_row(&row);
    }
    printf("]}");
}

/* ---- all of a process */

int info_live(int pid, int json) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *dir = opendir(path);
    if (!dir) {
        fprintf(stderr, "weft-info: process %d: %s\n", pid,
                errno == ENOENT ? "there is none" : strerror(errno));
        return 0;
    }
    int found = 0, own = own_pid(pid);
    if (json) printf("{\"live\":[");
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        struct stats_view view;
        void *copy = copy_page(dirfd(dir), entry->d_name, &view);
        if (!copy) continue;
        if (view.head->pid == own) { /* else a fork's, which shows its parent's */
            if (json && found) putchar(',');
            if (json)
                json_page(&view, pid);
            else
                print_page(&view, pid);
            found++;
        }
        free(copy);
    }
    closedir(dir);
    if (json) printf("]}\n");
    if (!found) fprintf(stderr, "weft-info: process %d shows no worker of Weft\n", pid);
    return found > 0;
}
