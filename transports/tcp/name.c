/* Parses host:port, looks names up in /etc/hosts, and converts socket addresses. */
#define _GNU_SOURCE
#include "name.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <reactor/reactor.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* ---- host:port ------------------------------------------------------------------------------- */

static bool parse_port(const char *text, size_t len, uint16_t *port_p) {
    unsigned port = 0;
    if (len == 0 || len > 5) return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        port = port * 10 + (unsigned)(text[i] - '0');
    }
    *port_p = (uint16_t)port;
    return port <= UINT16_MAX;
}

static bool parse_where(const char *text, size_t len, struct tcp_where *where) {
    const char *host = text, *colon = len ? memrchr(text, ':', len) : NULL;
    if (!colon) return false;
    size_t host_len = (size_t)(colon - text);
    if (!parse_port(colon + 1, len - host_len - 1, &where->port)) return false;
    if (host_len >= 2 && host[0] == '[' && host[host_len - 1] == ']') {
        host++;
        host_len -= 2;
    } else if (memchr(host, ':', host_len)) {
        return false; /* IPv6 goes into brackets */
    }
    if (host_len == 0 || host_len >= sizeof where->host) return false;
    for (size_t i = 0; i < host_len; i++)
        if ((unsigned char)host[i] <= ' ' || strchr("[]/\x7f", host[i])) return false;
    memcpy(where->host, host, host_len);
    where->host[host_len] = 0;
    return true;
}

weft_status_t weft__tcp_where_parse(const char *text, size_t len, struct tcp_where *where_p) {
    struct tcp_where where;
    if (!parse_where(text, len, &where))
        return weft__fail(WEFT_ERR_ADDRESS, "\"%.*s\" is not host:port, [v6]:port or *:port",
                          (int)(len < 256 ? len : 256), text);
    *where_p = where;
    return WEFT_OK;
}

/* ---- names ----------------------------------------------------------------------------------- */

bool weft__tcp_host_numeric(const char *host, uint16_t port, union tcp_sockaddr *to) {
    union tcp_sockaddr a = {.v4.sin_family = AF_INET, .v4.sin_port = htons(port)};
    if (inet_pton(AF_INET, host, &a.v4.sin_addr) == 1) {
        *to = a;
        return true;
    }
    char bare[INET6_ADDRSTRLEN];
    const char *zone = strchr(host, '%');
    size_t len = zone ? (size_t)(zone - host) : strlen(host);
    if (len >= sizeof bare) return false;
    memcpy(bare, host, len);
    bare[len] = 0;
    a = (union tcp_sockaddr){.v6.sin6_family = AF_INET6, .v6.sin6_port = htons(port)};
    if (inet_pton(AF_INET6, bare, &a.v6.sin6_addr) != 1) return false;
    if (zone && (a.v6.sin6_scope_id = if_nametoindex(zone + 1)) == 0) return false;
    *to = a;
    return true;
}

/* The next word of a line; NULL at its end or at a comment. */
static const char *next_word(const char **at, const char *end, size_t *len_p) {
    while (*at < end && (**at == ' ' || **at == '\t' || **at == '\r')) ++*at;
    const char *word = *at;
    if (word == end || *word == '#') return NULL;
    while (*at < end && **at != ' ' && **at != '\t' && **at != '\r' && **at != '#') ++*at;
    *len_p = (size_t)(*at - word);
    return word;
}

static bool line_names(const char *at, const char *end, const char *host, char *ip,
                       size_t ip_room) {
    size_t len, host_len = strlen(host);
    const char *word = next_word(&at, end, &len);
    if (!word || len >= ip_room) return false;
    memcpy(ip, word, len);
    ip[len] = 0;
    while ((word = next_word(&at, end, &len)))
        if (len == host_len && strncasecmp(word, host, len) == 0) return true;
    return false;
}

size_t weft__tcp_hosts_find(const char *text, size_t len, const char *host, uint16_t port,
                            union tcp_sockaddr *to, size_t room) {
    char ip[INET6_ADDRSTRLEN + IF_NAMESIZE];
    size_t n = 0;
    for (const char *end = text + len, *line = text, *stop; line < end && n < room;
         line = stop + 1) {
        stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) stop = end;
        if (line_names(line, stop, host, ip, sizeof ip) && weft__tcp_host_numeric(ip, port, &to[n]))
            n++;
    }
    return n;
}

static size_t hosts_file_find(const char *host, uint16_t port, union tcp_sockaddr *to,
                              size_t room) {
    char text[32 * 1024];
    int fd = open("/etc/hosts", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t len = read(fd, text, sizeof text);
    close(fd);
    return len > 0 ? weft__tcp_hosts_find(text, (size_t)len, host, port, to, room) : 0;
}

weft_status_t weft__tcp_resolve(const struct tcp_where *where, union tcp_sockaddr *to,
                                size_t *n_p) {
    if (strcmp(where->host, "*") == 0) {
        *to = (union tcp_sockaddr){.v6.sin6_family = AF_INET6, .v6.sin6_port = htons(where->port)};
        *n_p = 1;
        return WEFT_OK;
    }
    if (weft__tcp_host_numeric(where->host, where->port, to)) {
        *n_p = 1;
        return WEFT_OK;
    }
    size_t n = hosts_file_find(where->host, where->port, to, *n_p);
    if (n == 0 && strcasecmp(where->host, "localhost") == 0)
        n = weft__tcp_host_numeric("127.0.0.1", where->port, to);
    if (n == 0)
        return weft__fail(WEFT_ERR_ADDRESS,
                          "\"%s\" is neither a numeric address nor a name in /etc/hosts",
                          where->host);
    *n_p = n;
    return WEFT_OK;
}

/* ---- socket addresses ------------------------------------------------------------------------ */

socklen_t weft__tcp_sockaddr_len(const union tcp_sockaddr *a) {
    return a->any.sa_family == AF_INET ? sizeof a->v4 : sizeof a->v6;
}

uint16_t weft__tcp_sockaddr_port(const union tcp_sockaddr *a) {
    return ntohs(a->any.sa_family == AF_INET ? a->v4.sin_port : a->v6.sin6_port);
}

bool weft__tcp_sockaddr_equal(const union tcp_sockaddr *a, const union tcp_sockaddr *b) {
    if (a->any.sa_family != b->any.sa_family ||
        weft__tcp_sockaddr_port(a) != weft__tcp_sockaddr_port(b))
        return false;
    if (a->any.sa_family == AF_INET) return a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
    return memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, 16) == 0;
}

bool weft__tcp_is_loopback(const union tcp_sockaddr *a) {
    if (a->any.sa_family == AF_INET) return ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
    if (IN6_IS_ADDR_V4MAPPED(&a->v6.sin6_addr)) return a->v6.sin6_addr.s6_addr[12] == 127;
    return IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
}

bool weft__tcp_is_any(const union tcp_sockaddr *a) {
    if (a->any.sa_family == AF_INET) return a->v4.sin_addr.s_addr == INADDR_ANY;
    return IN6_IS_ADDR_UNSPECIFIED(&a->v6.sin6_addr);
}

void weft__tcp_sockaddr_text(const union tcp_sockaddr *a, char *buf, size_t size) {
    char ip[INET6_ADDRSTRLEN] = "?", zone[IF_NAMESIZE] = "";
    unsigned port = weft__tcp_sockaddr_port(a);
    if (a->any.sa_family == AF_INET) {
        inet_ntop(AF_INET, &a->v4.sin_addr, ip, sizeof ip);
        snprintf(buf, size, "%s:%u", ip, port);
        return;
    }
    inet_ntop(AF_INET6, &a->v6.sin6_addr, ip, sizeof ip);
    bool zoned = a->v6.sin6_scope_id && if_indextoname(a->v6.sin6_scope_id, zone);
    snprintf(buf, size, "[%s%s%s]:%u", ip, zoned ? "%" : "", zone, port);
}

void weft__tcp_sockaddr_to_place(const union tcp_sockaddr *a, struct tcp_place *to) {
    memset(to->ip, 0, sizeof to->ip);
    to->port = weft__tcp_sockaddr_port(a);
    to->scope = 0;
    if (a->any.sa_family == AF_INET) {
        to->family = 4;
        memcpy(to->ip, &a->v4.sin_addr, 4);
        return;
    }
    to->family = 6;
    to->scope = a->v6.sin6_scope_id;
    memcpy(to->ip, &a->v6.sin6_addr, 16);
}

void weft__tcp_place_to_sockaddr(const struct tcp_place *a, union tcp_sockaddr *to) {
    memset(to, 0, sizeof *to);
    if (a->family == 4) {
        to->v4.sin_family = AF_INET;
        to->v4.sin_port = htons(a->port);
        memcpy(&to->v4.sin_addr, a->ip, 4);
        return;
    }
    to->v6.sin6_family = AF_INET6;
    to->v6.sin6_port = htons(a->port);
    to->v6.sin6_scope_id = a->scope;
    memcpy(&to->v6.sin6_addr, a->ip, 16);
}

/* ---- this host's addresses ------------------------------------------------------------------- */

static bool outward(const struct ifaddrs *i, int family) {
    if (!i->ifa_addr || i->ifa_addr->sa_family != family || !(i->ifa_flags & IFF_UP)) return false;
    if (i->ifa_flags & IFF_LOOPBACK) return false;
    return family == AF_INET ||
           !IN6_IS_ADDR_LINKLOCAL(
               &((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr);
}

/* The first that is `wanted` (IPv4 before IPv6), of `name` or of any. */
static bool find_address(bool (*wanted)(const struct ifaddrs *, int), const char *name,
                         union tcp_sockaddr *a) {
    static const int families[] = {AF_INET, AF_INET6};
    struct ifaddrs *all, *i = NULL;
    if (getifaddrs(&all) < 0) return false;
    for (int f = 0; f < 2 && !i; f++)
        for (i = all; i && !(wanted(i, families[f]) && (!name || strcmp(name, i->ifa_name) == 0));)
            i = i->ifa_next;
    if (i) {
        memset(a, 0, sizeof *a);
        memcpy(a, i->ifa_addr, i->ifa_addr->sa_family == AF_INET ? sizeof a->v4 : sizeof a->v6);
    }
    freeifaddrs(all);
    return i != NULL;
}

bool weft__tcp_outward_address(union tcp_sockaddr *a) {
    return find_address(outward, NULL, a);
}

static bool any_address(const struct ifaddrs *i, int family) {
    return i->ifa_addr && i->ifa_addr->sa_family == family;
}

bool weft__tcp_interface_address(const char *name, union tcp_sockaddr *a) {
    return find_address(any_address, name, a);
}
