/*
 * Settings. base/settings.def is the one table. Each source overrides those before it: defaults,
 * the file, the environment, the program. Warnings about unknown names come last, when the settings
 * of the log itself are known.
 */
#define _GNU_SOURCE
#include "alloc.h"
#include "check.h"
#include "context.h"
#include "log.h"
#include "status.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>

extern char **environ;

enum type { TYPE_U64, TYPE_SIZE, TYPE_AUTOSIZE, TYPE_TIME, TYPE_BOOL, TYPE_STR };

static const struct setting_row {
    const char *name;
    enum type type;
    const char *value, *range, *unit, *help;
} table[N_SETTINGS] = {
#define SETTING(id, name, type, value, range, unit, help) \
    {name, TYPE_##type, value, range, unit, help},
#include <base/settings.def>
#undef SETTING
};

enum { MOST_NAME = 64, MOST_PATH = 4096 };

/* ---- values ---------------------------------------------------------------------------------- */

struct suffix {
    const char *text;
    uint64_t factor;
};

static const struct suffix sizes[] = {{"", 1},           {"b", 1},          {"k", 1ull << 10},
                                      {"m", 1ull << 20}, {"g", 1ull << 30}, {"t", 1ull << 40},
                                      {NULL, 0}};
static const struct suffix times[] = {{"", 1},        {"ms", 1},      {"s", 1000},
                                      {"min", 60000}, {"h", 3600000}, {NULL, 0}};
static const struct suffix plain[] = {{"", 1}, {NULL, 0}};

static bool parse_number(const char *text, const struct suffix *suffixes, uint64_t *value_p) {
    if (!isdigit((unsigned char)*text)) return false;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno) return false;
    for (const struct suffix *s = suffixes; s->text; s++)
        if (!strcasecmp(end, s->text)) return !__builtin_mul_overflow(number, s->factor, value_p);
    return false;
}

static bool parse_bool(const char *text, uint64_t *value_p) {
    static const char *const words[] = {"no", "yes", "off", "on", "false", "true", "0", "1"};
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(text, words[i])) continue;
        *value_p = i % 2;
        return true;
    }
    return false;
}

static bool parse(enum type type, const char *text, uint64_t *value_p) {
    switch (type) {
    case TYPE_U64: return parse_number(text, plain, value_p);
    case TYPE_SIZE: return parse_number(text, sizes, value_p);
    case TYPE_AUTOSIZE:
        *value_p = SETTING_AUTO;
        return strcasecmp(text, "auto") == 0 || parse_number(text, sizes, value_p);
    case TYPE_TIME: return parse_number(text, times, value_p);
    case TYPE_BOOL: return parse_bool(text, value_p);
    case TYPE_STR: *value_p = 0; return true;
    }
    return false;
}

static const char *expected(enum type type) {
    switch (type) {
    case TYPE_U64: return "a number";
    case TYPE_SIZE: return "a size such as 4096, 64k or 1m";
    case TYPE_AUTOSIZE: return "auto, or a size such as 4096, 64k or 1m";
    case TYPE_TIME: return "a time such as 250ms or 2s";
    case TYPE_BOOL: return "yes or no";
    case TYPE_STR: break;
    }
    return "text";
}

/* A side of the range that is empty is no number, and bounds nothing. */
static bool in_range(const struct setting_row *row, uint64_t number) {
    const char *dots = strstr(row->range, "..");
    char least[MOST_NAME];
    uint64_t bound;
    if (!dots || (row->type == TYPE_AUTOSIZE && number == SETTING_AUTO)) return true;
    snprintf(least, sizeof least, "%.*s", (int)(dots - row->range), row->range);
    if (parse(row->type, least, &bound) && number < bound) return false;
    return !parse(row->type, dots + 2, &bound) || number <= bound;
}

static weft_status_t refuse_text(const struct setting_row *row, const char *text) {
    if (row->type == TYPE_U64 && *row->unit)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "%s is \"%s\", not a number (%s)", row->name,
                          text, row->unit);
    return weft__fail(WEFT_ERR_INVALID_PARAM, "%s is \"%s\", not %s", row->name, text,
                      expected(row->type));
}

static weft_status_t set_setting(weft_context_t *context, size_t index, const char *text,
                                 weft_origin_t origin) {
    struct setting_value *setting = &context->setting[index];
    const struct setting_row *row = &table[index];
    uint64_t number;
    if (!parse(row->type, text, &number)) return refuse_text(row, text);
    if (!in_range(row, number))
        return weft__fail(WEFT_ERR_INVALID_PARAM, "%s is \"%s\", outside its range %s", row->name,
                          text, row->range);
    if (index == SETTING_LOG_LEVEL && !weft__log_level_parse(text, &context->log_level))
        return weft__fail(WEFT_ERR_INVALID_PARAM,
                          "%s is \"%s\", not none, error, warn, info, debug or trace", row->name,
                          text);
    size_t size = strlen(text) + 1;
    char *copy = weft__alloc(context, size, "setting");
    if (!copy) return WEFT_ERR_NO_MEMORY;
    talloc_free(setting->text);
    *setting = (struct setting_value){memcpy(copy, text, size), number, origin};
    return WEFT_OK;
}

/* ---- names ----------------------------------------------------------------------------------- */

static size_t find_setting(const char *name) {
    size_t i = 0;
    while (i < N_SETTINGS && strcmp(table[i].name, name)) i++;
    return i;
}

/* Levenshtein's distance, by one row of its matrix. The case of `a` does not count: names are in
 * lower case. */
static unsigned distance(const char *a, const char *b) {
    unsigned row[MOST_NAME + 1];
    size_t n = strnlen(b, MOST_NAME);
    for (size_t j = 0; j <= n; j++) row[j] = (unsigned)j;
    for (; *a; a++) {
        unsigned diagonal = row[0]++;
        for (size_t j = 1; j <= n; j++) {
            unsigned best = diagonal + (tolower((unsigned char)*a) != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[n];
}

/* What may have been meant: at most a third of its characters differ. Otherwise NULL. A name may
 * be written as that of its environment variable. */
static const char *nearest(const char *name) {
    size_t best = 0;
    if (!strncasecmp(name, "WEFT_", 5)) name += 5;
    for (size_t i = 1; i < N_SETTINGS; i++)
        if (distance(name, table[i].name) < distance(name, table[best].name)) best = i;
    return distance(name, table[best].name) <= strlen(name) / 3 ? table[best].name : NULL;
}

/* ---- sources --------------------------------------------------------------------------------- */

/* What one (name, value) of a source leads to: the first pass sets, the second warns. */
typedef weft_status_t (*take_fn)(weft_context_t *context, const char *name, const char *shown,
                                 const char *value, weft_origin_t origin);

static weft_status_t take_known(weft_context_t *context, const char *name, const char *shown,
                                const char *value, weft_origin_t origin) {
    size_t index = find_setting(name);
    return index < N_SETTINGS ? set_setting(context, index, value, origin) : WEFT_OK;
}

/* A setting's name as its source writes it: WEFT_TCP_BIND, or tcp.bind. */
static void spell(const char *name, weft_origin_t origin, char *text, size_t size) {
    bool is_variable = origin == WEFT_ORIGIN_ENVIRONMENT;
    snprintf(text, size, "%s%s", is_variable ? "WEFT_" : "", name);
    for (char *at = text; is_variable && *at; at++)
        *at = *at == '.' ? '_' : (char)toupper((unsigned char)*at);
}

static weft_status_t warn_unknown(weft_context_t *context, const char *name, const char *shown,
                                  const char *value, weft_origin_t origin) {
    if (find_setting(name) < N_SETTINGS) return WEFT_OK;
    const char *near = nearest(name);
    char meant[MOST_NAME + 6];
    if (near) {
        spell(near, origin, meant, sizeof meant);
        weft__log(context, WEFT_LOG_WARN, "config", "unknown setting %s; did you mean %s?", shown,
                  meant);
    } else {
        weft__log(context, WEFT_LOG_WARN, "config",
                  "unknown setting %s; weft-info --config lists all", shown);
    }
    return WEFT_OK;
}

static char *trim(char *text) {
    while (isspace((unsigned char)*text)) text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1])) *--end = 0;
    return text;
}

static weft_status_t take_line(weft_context_t *context, char *line, const char *path,
                               unsigned number, take_fn take) {
    char *comment = strchr(line, '#');
    if (comment) *comment = 0;
    char *name = trim(line), *equals = strchr(name, '=');
    if (!*name) return WEFT_OK;
    if (!equals)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "%s:%u: not \"name = value\"", path, number);
    *equals = 0;
    name = trim(name);
    weft_status_t st = take(context, name, name, trim(equals + 1), WEFT_ORIGIN_FILE);
    return st < 0 ? weft__fail_in(st, "%s:%u", path, number) : st;
}

static weft_status_t take_stream(weft_context_t *context, FILE *file, const char *path,
                                 take_fn take) {
    char *line = NULL;
    size_t room = 0;
    weft_status_t st = WEFT_OK;
    for (unsigned number = 1; st == WEFT_OK && getline(&line, &room, file) >= 0; number++)
        st = take_line(context, line, path, number, take);
    if (st == WEFT_OK && !feof(file))
        st = weft__fail(weft__file_status(errno), "%s: %s", path, strerror(errno));
    free(line);
    return st;
}

/* The file to read; false: none. One that was asked for by name must be there. */
static bool choose_file(const weft_context_params_t *params, char *path, bool *must_be_there_p) {
    const char *named = params->file ? params->file : secure_getenv("WEFT_CONFIG");
    const char *home = secure_getenv("HOME");
    *must_be_there_p = named != NULL;
    if (named) return snprintf(path, MOST_PATH, "%s", named) > 0;
    return home && snprintf(path, MOST_PATH, "%s/.config/weft.conf", home) < MOST_PATH;
}

static weft_status_t take_file(weft_context_t *context, const weft_context_params_t *params,
                               take_fn take) {
    char path[MOST_PATH];
    bool must_be_there;
    if (!choose_file(params, path, &must_be_there)) return WEFT_OK;
    FILE *file = fopen(path, "re");
    weft_status_t st = file              ? WEFT_OK
                       : errno == ENOENT ? WEFT_ERR_NOT_FOUND
                                         : weft__file_status(errno);
    if (!file && !must_be_there && !weft__lacks_room(st)) return WEFT_OK;
    if (!file) return weft__fail(st, "%s: %s", path, strerror(errno));
    st = take_stream(context, file, path, take);
    fclose(file);
    return st;
}

/*
 * "TCP_KEY_FILE" could be tcp.key_file or tcp.key.file: the table knows. What is in no row becomes
 * a name by its first underscore alone.
 */
static void name_of_variable(const char *variable, size_t len, char *name) {
    for (size_t i = 0; i < N_SETTINGS; i++) {
        if (strlen(table[i].name) != len) continue;
        size_t at = 0;
        while (at < len &&
               variable[at] ==
                   (table[i].name[at] == '.' ? '_' : toupper((unsigned char)table[i].name[at])))
            at++;
        if (at == len) {
            memcpy(name, table[i].name, len + 1);
            return;
        }
    }
    for (size_t at = 0; at < len; at++) name[at] = (char)tolower((unsigned char)variable[at]);
    name[len] = 0;
    char *underscore = strchr(name, '_');
    if (underscore) *underscore = '.';
}

/* WEFT_CONFIG names the file, WEFT_RUN_… is between weft-run and its processes, WEFT_TEST_… is
 * for tests, and the others say to a view where its store is. */
static bool is_setting_variable(const char *text) {
    static const char *const others[] = {"RUN_", "TEST_", "CONFIG=", "STORE=", "RANK=", "SIZE="};
    if (strncmp(text, "WEFT_", 5) != 0) return false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strncmp(text + 5, others[i], strlen(others[i]))) return false;
    return true;
}

/* A program that runs with more rights than its caller (AT_SECURE) takes nothing from the
 * environment. */
static weft_status_t take_environment(weft_context_t *context, take_fn take) {
    weft_status_t st = WEFT_OK;
    if (getauxval(AT_SECURE)) return WEFT_OK;
    for (char **variable = environ; st == WEFT_OK && variable && *variable; variable++) {
        const char *equals = strchr(*variable, '=');
        if (!equals || !is_setting_variable(*variable)) continue;
        size_t len = (size_t)(equals - *variable) - 5;
        char name[MOST_NAME + 1], shown[MOST_NAME + 6];
        if (len == 0 || len > MOST_NAME) continue;
        name_of_variable(*variable + 5, len, name);
        snprintf(shown, sizeof shown, "WEFT_%.*s", (int)len, *variable + 5);
        st = take(context, name, shown, equals + 1, WEFT_ORIGIN_ENVIRONMENT);
        if (st < 0) weft__fail_in(st, "environment variable %s", shown);
    }
    return st;
}

static weft_status_t take_params(weft_context_t *context, const weft_context_params_t *params,
                                 take_fn take) {
    for (size_t i = 0; i < params->n_settings; i++) {
        const weft_setting_t *setting = &params->settings[i];
        if (!setting->name || !setting->value)
            return weft__fail(WEFT_ERR_INVALID_PARAM, "params.settings[%zu] has no %s", i,
                              setting->name ? "value" : "name");
        weft_status_t st =
            take(context, setting->name, setting->name, setting->value, WEFT_ORIGIN_PARAMS);
        if (st < 0) return weft__fail_in(st, "params.settings[%zu]", i);
    }
    return WEFT_OK;
}

static weft_status_t take_all(weft_context_t *context, const weft_context_params_t *params,
                              take_fn take) {
    weft_status_t st = take_file(context, params, take);
    if (st == WEFT_OK) st = take_environment(context, take);
    if (st == WEFT_OK) st = take_params(context, params, take);
    return st;
}

weft_status_t weft__config_read(weft_context_t *context, const weft_context_params_t *params) {
    for (size_t i = 0; i < N_SETTINGS; i++) {
        weft_status_t st = set_setting(context, i, table[i].value, WEFT_ORIGIN_DEFAULT);
        if (st < 0) return st;
    }
    return take_all(context, params, take_known);
}

void weft__config_warn_unknown(weft_context_t *context, const weft_context_params_t *params) {
    take_all(context, params, warn_unknown);
}

/* ---- asking ---------------------------------------------------------------------------------- */

uint64_t weft__setting_u64(const weft_context_t *context, enum setting id) {
    return context->setting[id].number;
}
uint32_t weft__setting_u32(const weft_context_t *context, enum setting id, uint32_t most) {
    uint64_t number = context->setting[id].number;
    return number < most ? (uint32_t)number : most;
}
const char *weft__setting_str(const weft_context_t *context, enum setting id) {
    return context->setting[id].text;
}

weft_status_t weft_context_setting_sized(size_t info_size, const weft_context_t *context,
                                         size_t index, weft_setting_info_t *info_p) {
    if (!context) return weft__fail(WEFT_ERR_INVALID_PARAM, "context is NULL");
    if (!info_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "info_p is NULL");
    if (index >= N_SETTINGS)
        return weft__fail(WEFT_ERR_NOT_FOUND, "there are %d settings", (int)N_SETTINGS);
    const weft_setting_info_t info = {
        table[index].name, context->setting[index].text,   table[index].unit,
        table[index].help, context->setting[index].origin, table[index].range};
    weft__info_write(info_p, info_size, &info, sizeof info);
    return WEFT_OK;
}
