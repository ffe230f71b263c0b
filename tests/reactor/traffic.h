/*
 * A whole worker in a host, woken by real messages: another process sends them one by one, at
 * instants around the moment when the host goes to sleep. A message that does not wake it is
 * seen as a sleep without end.
 */
#ifndef WEFT_TESTS_REACTOR_TRAFFIC_H
#define WEFT_TESTS_REACTOR_TRAFFIC_H

#include "hosts.h"

/* NULL, or what went wrong. "self": the program sends to itself, from outside its loop's
 * callbacks. */
const char *traffic(const struct host *kind, const char *transport, int messages);

/* Over every transport, as many messages as the race window wants; prints what failed. */
bool traffic_passes(const struct host *kind);

#endif
