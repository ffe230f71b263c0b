/*
 * A team of some members of another, made by allgathers of that one: the colours and keys of all,
 * then the record of each, which is the exchange of the new team. Where the parent has a segment, a
 * third one settles the new team: what each member has of it. Else its first collective does.
 */
#include "team_split.h"
#include "collective.h"
#include "missing.h"
#include "no_team.h"

#include <stdlib.h>
#include <string.h>

struct place {
    uint32_t colour, key, rank;
};

struct split {
    weft_team_t *parent; /* lives while one of its allgathers is in progress; NULL: it has failed */
    struct team_watch watch;
    weft_team_params_t params;
    weft_exchange_t exchange;
    struct reactor *reactor;
    struct place mine, *all; /* sorted: the first `size` are the members of the new team */
    uint32_t of_parent;
    uint8_t *record, *records; /* of this side, and of all members of the parent */
    bool cancelled;            /* the exchange */
    weft_done_fn done;
    void *done_arg, *to;
    struct team_meeting meeting;
    bool meets;        /* the new team agrees by the parent */
    weft_team_t *team; /* that is to agree; NULL: none, or it has failed */
    bool knows, spoke; /* the records of all; its word */
    uint32_t word, *words;
    struct job notify;
    struct no_team none;
};

/* ---- its end --------------------------------------------------------------------------------- */

static void leave_parent(struct split *s) {
    if (s->parent) {
        s->parent->is_parent = false;
        weft__team_settle(s->parent);
    }
    list_remove(&s->watch.of_team);
    s->parent = NULL;
}

static void drop_split(struct split *s) {
    leave_parent(s);
    weft__free_later(s->reactor, s);
}

static void notify_split(struct job *job) {
    struct split *s = list_of(job, struct split, notify);
    struct reactor *reactor = s->reactor;
    weft_team_params_t params = s->params;
    weft_status_t status = s->none.status;
    weft__no_team_explain(&s->none, "splitting a team");
    weft__free_later(reactor, s);
    params.on_ready(NULL, status, params.arg);
    weft__program_returned(reactor);
}

/* There is no team here. The first failure counts. */
static void end_split(struct split *s, weft_status_t status) {
    if (s->none.status == WEFT_OK) weft__no_team(&s->none, status);
    leave_parent(s);
    weft__job_post(s->reactor, &s->notify);
}

static weft_status_t gather(struct split *s, const void *src, void *dst, size_t len,
                            weft_done_fn done) {
    weft_coll_args_t args = {
        .kind = WEFT_COLL_ALLGATHER, .type = WEFT_UINT8, .src = src, .dst = dst, .count = len};
    weft_op_t op = {.done = done, .arg = s};
    return weft__team_inner(s->parent, &args, &op);
}

/* When the call that began the split has returned. */
static void gather_on(struct split *s, const void *src, void *dst, size_t len, weft_done_fn done) {
    weft__causes_clear();
    weft_status_t st = gather(s, src, dst, len, done);
    if (st < 0 && s->none.status == WEFT_OK) weft__no_team(&s->none, st);
    if (st < 0) weft__team_out_of_step(s->parent, st);
    if (st != WEFT_IN_PROGRESS) done(st, s);
}

/* ---- the words ------------------------------------------------------------------------------- */

/*
 * What each member of the new team has (`agreed`), gathered from all members of the parent by its
 * segment. Then no member waits for one that connects, or wakes for each message of an agreement. A
 * member without a team, or whose team has failed, speaks for the others' sake.
 */
enum { NO_TEAM = UINT32_MAX };

/* The largest of the members', or the first that has no team. */
static uint32_t words_of_members(const struct split *s, uint32_t *rank_p) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < s->exchange.size && most != NO_TEAM; i++) {
        uint32_t word = s->words[s->all[i].rank];
        if (word == NO_TEAM) *rank_p = i;
        if (word > most) most = word;
    }
    return most;
}

/* Others may know all words, and be at work: they are to learn that this team fails. */
static void connect_to_warn(weft_team_t *team) {
    weft__team_connect(team);
    team->all_came = true;
}

static void settle_team(weft_team_t *team, const struct split *s, weft_status_t status) {
    uint32_t lost = 0, word = status < 0 ? 0 : words_of_members(s, &lost);
    team->meeting = NULL;
    if (status < 0) {
        connect_to_warn(team);
        weft__team_fail(team, status, team->rank);
    } else if (word == NO_TEAM) {
        weft__team_loses(team, lost, WEFT_ERR_PEER_FAILED);
    } else {
        weft__team_agreed(team, word);
        weft__team_connect(team);
    }
}

static void words_known(weft_status_t status, void *arg) {
    struct split *s = arg;
    weft_team_t *team = s->team;
    bool has_team = s->meeting.agree != NULL;
    if (!has_team) {
        end_split(s, status);
        return;
    }
    leave_parent(s);
    if (team) settle_team(team, s, status);
    drop_split(s);
}

static void speak(struct split *s, uint32_t word) {
    s->spoke = true;
    s->word = word;
    gather_on(s, &s->word, s->words, sizeof s->word, words_known);
}

static void agree_by_parent(struct team_meeting *meeting) {
    struct split *s = list_of(meeting, struct split, meeting);
    speak(s, s->team->agreed);
}

/* Before the records are known, their end speaks. */
static void leave_meeting(struct team_meeting *meeting) {
    struct split *s = list_of(meeting, struct split, meeting);
    weft_team_t *team = s->team;
    s->team = NULL;
    if (s->spoke)
        connect_to_warn(team);
    else if (s->knows)
        speak(s, NO_TEAM);
}

/* Between two of its collectives, whose end would show it otherwise. */
static void parent_failed(struct team_watch *watch) {
    struct split *s = list_of(watch, struct split, watch);
    weft_status_t status = s->parent->status;
    if (!s->knows || s->spoke) return;
    s->spoke = true;
    words_known(status, s);
}

/* ---- the records ----------------------------------------------------------------------------- */

static void recorded(weft_status_t status, void *arg) {
    struct split *s = arg;
    if (!s->cancelled) {
        for (uint32_t i = 0; i < s->exchange.size && status == WEFT_OK; i++)
            memcpy((uint8_t *)s->to + (size_t)i * MEMBER_RECORD_BYTES,
                   s->records + (size_t)s->all[i].rank * MEMBER_RECORD_BYTES, MEMBER_RECORD_BYTES);
        s->done(status, s->done_arg);
    }
    s->knows = status == WEFT_OK;
    if (!s->meets || !s->knows) {
        if (s->team) s->team->meeting = NULL;
        drop_split(s);
    } else if (s->cancelled) {
        speak(s, NO_TEAM);
    }
}

static weft_status_t gather_records(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                                    void *all, weft_done_fn done, void *done_arg) {
    struct split *s = arg;
    memcpy(s->record, mine, len);
    s->to = all;
    s->done = done;
    s->done_arg = done_arg;
    weft_status_t st = gather(s, s->record, s->records, len, recorded);
    if (st == WEFT_OK) recorded(WEFT_OK, s);
    return st < 0 ? st : WEFT_OK;
}

static void cancel_records(void *arg) {
    ((struct split *)arg)->cancelled = true;
}

/* This member has no team, and takes part for the others. An empty record is malformed: a team
 * that counted on this member fails. */
static void took_part(weft_status_t status, void *arg) {
    struct split *s = arg;
    if (s->meets && status == WEFT_OK)
        speak(s, NO_TEAM);
    else
        end_split(s, status);
}

static void take_part(struct split *s, weft_status_t status) {
    if (status < 0) weft__no_team(&s->none, status);
    s->meeting.agree = NULL;
    gather_on(s, s->record, s->records, MEMBER_RECORD_BYTES, took_part);
}

/* By the collective that is its exchange, or in which it meets. */
static bool split_missing(const weft_team_t *team, char *buf, size_t size) {
    const struct split *s = team->exchange.arg;
    return s->parent && weft__missing_in(s->parent, s->parent->inner, buf, size);
}

/* ---- the colours ----------------------------------------------------------------------------- */

static int by_key(const void *x, const void *y) {
    const struct place *a = x, *b = y;
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

/* Keeps the places of this side's colour, by key, then by rank in the parent. */
static void find_members(struct split *s) {
    uint32_t n = 0;
    for (uint32_t r = 0; r < s->of_parent; r++)
        if (s->all[r].colour == s->mine.colour) s->all[n++] = s->all[r];
    qsort(s->all, n, sizeof *s->all, by_key);
    s->exchange.size = n;
    for (uint32_t i = 0; i < n; i++)
        if (s->all[i].rank == s->mine.rank) s->exchange.rank = i;
}

static void coloured(weft_status_t status, void *arg) {
    struct split *s = arg;
    weft_team_t *team;
    if (status < 0) {
        end_split(s, status);
        return;
    }
    if (s->mine.colour == WEFT_NO_COLOUR) {
        take_part(s, WEFT_OK);
        return;
    }
    find_members(s);
    s->params.exchange = &s->exchange;
    weft__causes_clear();
    weft_status_t st = weft__team_create(s->parent->opener, &s->params, 0, &team);
    if (st < 0) {
        take_part(s, st);
        return;
    }
    team->missing = split_missing;
    if (s->meets) {
        s->team = team;
        team->meeting = &s->meeting;
        team->of_parent = s->parent->agreed;
    }
}

/* ---- its beginning --------------------------------------------------------------------------- */

static struct split *new_split(weft_team_t *parent, const weft_team_params_t *params) {
    struct split *s = weft__new(parent->reactor, struct split);
    if (!s) return NULL;
    s->parent = parent;
    s->reactor = parent->reactor;
    s->params = *params;
    s->of_parent = parent->size;
    s->exchange =
        (weft_exchange_t){.allgather = gather_records, .cancel = cancel_records, .arg = s};
    s->notify.run = notify_split;
    s->meets = parent->segment != NULL;
    s->meeting = (struct team_meeting){.agree = agree_by_parent, .leave = leave_meeting};
    s->watch.failed = parent_failed;
    list_init(&s->watch.of_team);
    s->all = weft__alloc(s, parent->size * sizeof *s->all, "places");
    s->record = weft__alloc(s, MEMBER_RECORD_BYTES, "record");
    s->records = weft__alloc(s, (size_t)parent->size * MEMBER_RECORD_BYTES, "records");
    s->words = weft__alloc(s, parent->size * sizeof *s->words, "words");
    if (s->all && s->record && s->records && s->words) return s;
    talloc_free(s);
    return NULL;
}

weft_status_t weft__team_split(weft_team_t *parent, uint32_t colour, uint32_t key,
                               const weft_team_params_t *params) {
    weft_status_t st = weft__team_usable(parent);
    if (st < 0) return st;
    struct split *s = new_split(parent, params);
    if (!s) return WEFT_ERR_NO_MEMORY;
    s->mine = (struct place){colour, key, parent->rank};
    list_append(&parent->watches, &s->watch.of_team);
    st = gather(s, &s->mine, s->all, sizeof s->mine, coloured);
    if (st < 0) {
        leave_parent(s);
        talloc_free(s);
        return st;
    }
    if (st == WEFT_OK) coloured(WEFT_OK, s);
    return WEFT_OK;
}
