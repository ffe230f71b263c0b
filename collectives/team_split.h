/* Teams of some members of another (weft_team_split). */
#ifndef WEFT_COLLECTIVES_TEAM_SPLIT_H
#define WEFT_COLLECTIVES_TEAM_SPLIT_H

#include "team.h"

weft_status_t weft__team_split(weft_team_t *parent, uint32_t colour, uint32_t key,
                               const weft_team_params_t *params);

#endif
