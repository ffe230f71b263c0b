/* weft-info --collectives: which algorithm a collective takes, by its bytes. */
#ifndef WEFT_TOOLS_INFO_COLLECTIVES_H
#define WEFT_TOOLS_INFO_COLLECTIVES_H

/* For teams of 2, 8 and 64 members, with this process's settings. 0: a setting is wrong. */
int info_collectives(void);

#endif
