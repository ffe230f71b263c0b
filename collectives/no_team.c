/* The causes that are kept until a member is notified that it has no team. */
#include "no_team.h"

void weft__no_team(struct no_team *none, weft_status_t status) {
    if (none->status == status && none->why[0]) return;
    none->status = status;
    (void)weft__causes_line(status, none->why, sizeof none->why);
}

void weft__no_team_explain(const struct no_team *none, const char *what) {
    weft__causes_clear();
    if (none->status >= 0) return;
    if (none->why[0]) (void)weft__fail(none->status, "%s", none->why);
    (void)weft__fail_in(none->status, "%s", what);
}
