/* Pollers: memory that is looked at on every turn while it may have something, and armed before
 * the worker may sleep. */
#include "local.h"

void weft__poller_add(struct reactor *r, struct poller *poller) {
    if (!poller->listed) {
        struct poller **link = &r->pollers;
        while (*link) link = &(*link)->next;
        poller->next = NULL;
        *link = poller;
        poller->listed = true;
    }
    weft__reactor_kick(r); /* it has not been armed, or has more than it was armed with */
}

void weft__poller_remove(struct reactor *r, struct poller *poller) {
    if (!poller->listed) return;
    struct poller **link = &r->pollers;
    while (*link != poller) link = &(*link)->next;
    if (wakeup_is_armed(r) && poller->disarm) poller->disarm(poller);
    if (r->next_poller == poller) r->next_poller = poller->next;
    *link = poller->next;
    poller->next = NULL;
    poller->listed = false;
}

void weft__pollers_rotate(struct reactor *r, struct poller *first) {
    if (!first || first == r->pollers) return;
    struct poller *last = first, *end = r->pollers;
    while (last->next) last = last->next;
    while (end->next != first) end = end->next;
    last->next = r->pollers;
    end->next = NULL;
    r->pollers = first;
}

bool weft__pollers_arm(struct reactor *r) {
    for (struct poller *poller = r->pollers; poller; poller = poller->next) {
        if (!poller->arm || poller->arm(poller)) continue;
        for (struct poller *p = r->pollers; p != poller->next; p = p->next)
            if (p->disarm) p->disarm(p);
        return false;
    }
    return true;
}

void weft__pollers_disarm(struct reactor *r) {
    for (struct poller *poller = r->pollers; poller; poller = poller->next)
        if (poller->disarm) poller->disarm(poller);
}
