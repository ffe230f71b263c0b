/* weft-info --live: what the workers of a running process show of themselves. */
#ifndef WEFT_TOOLS_INFO_LIVE_H
#define WEFT_TOOLS_INFO_LIVE_H

/*
 * Prints all workers of that process; false, with the reason on stderr: it has none that may be
 * looked at.
 */
int info_live(int pid, int json);

#endif
