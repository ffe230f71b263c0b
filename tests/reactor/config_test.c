/* Settings, their sources and origins; the log. */
#include <base/counters.h>
#include <ctype.h>
#include <reactor/reactor.h>
#include <tests/harness.h>
#include <tests/support/scarce_descriptors.h>

static char lines[64][512];
static int n_lines;

static void keep_line(weft_log_level_t level, const char *room, const char *line, void *arg) {
    if (n_lines < 64) snprintf(lines[n_lines++], sizeof lines[0], "%d %s %s", level, room, line);
}

static bool logged(const char *part) {
    for (int i = 0; i < n_lines; i++)
        if (strstr(lines[i], part)) return true;
    return false;
}

static weft_context_t *context;

static weft_status_t create(const weft_setting_t *settings, size_t n, const char *file) {
    n_lines = 0;
    return weft_context_create(
        &(weft_context_params_t){
            .settings = settings, .n_settings = n, .file = file, .log = keep_line},
        &context);
}

static void write_file(char *path, const char *text) {
    strcpy(path, "/tmp/weft-config-XXXXXX");
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static weft_setting_info_t info_of(const char *name) {
    weft_setting_info_t info;
    for (size_t i = 0; weft_context_setting(context, i, &info) == WEFT_OK; i++)
        if (!strcmp(info.name, name)) return info;
    return (weft_setting_info_t){.value = "?"};
}

/* The environment of the caller must not matter here. */
static void forget_environment(void) {
    char name[128];
    for (char **at = environ; *at;) {
        bool ours = strncmp(*at, "WEFT_", 5) == 0;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*at, "="), *at);
        if (ours && unsetenv(name) == 0)
            at = environ;
        else
            at++;
    }
}

TEST(defaults_are_there_with_unit_and_help) {
    forget_environment();
    CHECK_EQ(create(NULL, 0, "/dev/null"), WEFT_OK);
    weft_setting_info_t info;
    size_t n = 0;
    for (; weft_context_setting(context, n, &info) == WEFT_OK; n++) {
        CHECK(*info.name && *info.help && info.value && info.unit);
        CHECK_EQ(info.origin, WEFT_ORIGIN_DEFAULT);
    }
    CHECK_EQ(n, N_SETTINGS);
    CHECK_EQ(weft_context_setting(context, n, &info), WEFT_ERR_NOT_FOUND);
    CHECK_EQ(weft__setting_u64(context, SETTING_CONNECT_TIMEOUT), 10000);
    CHECK_EQ(weft__setting_u64(context, SETTING_RENDEZVOUS_THRESHOLD), SETTING_AUTO);
    CHECK_EQ(weft__setting_u64(context, SETTING_TCP_INSECURE), 0);
    CHECK(!strcmp(weft__setting_str(context, SETTING_TCP_BIND), "127.0.0.1"));
    weft_context_destroy(context);
}

TEST(program_wins_over_environment_over_file) {
    char path[64];
    write_file(path,
               "# a comment\n\n  tcp.bind = ::1  # another\nconnect.timeout=2s\nshm.ring = 1m\n");
    setenv("WEFT_CONNECT_TIMEOUT", "250ms", 1);
    setenv("WEFT_SHM_RING", "128k", 1);
    setenv("WEFT_TCP_KEY_FILE", "/k", 1);
    weft_setting_t mine = {"shm.ring", "4096"};
    CHECK_EQ(create(&mine, 1, path), WEFT_OK);
    CHECK(!strcmp(weft__setting_str(context, SETTING_TCP_BIND), "::1"));
    CHECK_EQ(info_of("tcp.bind").origin, WEFT_ORIGIN_FILE);
    CHECK_EQ(weft__setting_u64(context, SETTING_CONNECT_TIMEOUT), 250);
    CHECK_EQ(info_of("connect.timeout").origin, WEFT_ORIGIN_ENVIRONMENT);
    CHECK(!strcmp(info_of("tcp.key_file").value, "/k"));
    CHECK_EQ(weft__setting_u64(context, SETTING_SHM_RING), 4096);
    CHECK_EQ(info_of("shm.ring").origin, WEFT_ORIGIN_PARAMS);
    CHECK_EQ(n_lines, 0);
    weft_context_destroy(context);
    unsetenv("WEFT_CONNECT_TIMEOUT"), unsetenv("WEFT_SHM_RING"), unsetenv("WEFT_TCP_KEY_FILE");
    unlink(path);
}

TEST(unknown_names_warn_with_the_nearest) {
    char path[64];
    write_file(path, "tpc.bind = 1\n");
    setenv("WEFT_SHM_RNG", "1", 1);
    setenv("WEFT_RUN_RANK", "1", 1);                             /* weft-run's, no setting */
    setenv("WEFT_STORE", "a:1", 1), setenv("WEFT_RANK", "0", 1); /* nor are a view's */
    weft_setting_t mine = {"conect.timeout", "1s"};
    CHECK_EQ(create(&mine, 1, path), WEFT_OK);
    CHECK_EQ(n_lines, 3);
    CHECK(logged("unknown setting tpc.bind; did you mean tcp.bind?"));
    CHECK(logged("unknown setting WEFT_SHM_RNG; did you mean WEFT_SHM_RING?"));
    CHECK(logged("unknown setting conect.timeout; did you mean connect.timeout?"));
    weft_context_destroy(context);
    unsetenv("WEFT_SHM_RNG"), unsetenv("WEFT_RUN_RANK");
    unsetenv("WEFT_STORE"), unsetenv("WEFT_RANK");
    unlink(path);
}

TEST(a_name_in_the_form_of_a_variable_or_in_upper_case_suggests_the_setting) {
    char path[64];
    write_file(path, "TCP.BUFFER = 64k\n");
    weft_setting_t mine = {"WEFT_TCP_KEY_FILE", "/k"};
    CHECK_EQ(create(&mine, 1, path), WEFT_OK);
    CHECK_EQ(n_lines, 2);
    CHECK(logged("unknown setting TCP.BUFFER; did you mean tcp.buffer?"));
    CHECK(logged("unknown setting WEFT_TCP_KEY_FILE; did you mean tcp.key_file?"));
    weft_context_destroy(context);
    unlink(path);
}

TEST(a_number_that_does_not_parse_is_refused_with_its_unit) {
    char text[1024];
    weft_setting_t mine = {"worker.spin", "50us"};
    CHECK_EQ(create(&mine, 1, "/dev/null"), WEFT_ERR_INVALID_PARAM);
    weft_status_describe(WEFT_ERR_INVALID_PARAM, text, sizeof text);
    CHECK(strstr(text, "worker.spin is \"50us\", not a number (ns)\n"));
}

TEST(a_name_that_is_like_no_other_suggests_none) {
    setenv("WEFT_FOO_BAR", "1", 1);
    weft_setting_t mine = {"x", "1"};
    CHECK_EQ(create(&mine, 1, "/dev/null"), WEFT_OK);
    CHECK_EQ(n_lines, 2);
    CHECK(logged("unknown setting WEFT_FOO_BAR; weft-info --config lists all"));
    CHECK(logged("unknown setting x; weft-info --config lists all"));
    weft_context_destroy(context);
    unsetenv("WEFT_FOO_BAR");
}

static bool refused(const char *name, const char *value) {
    char text[1024];
    weft_setting_t mine = {name, value};
    context = NULL;
    if (create(&mine, 1, "/dev/null") != WEFT_ERR_INVALID_PARAM || context) return false;
    weft_status_describe(WEFT_ERR_INVALID_PARAM, text, sizeof text);
    return strstr(text, name) != NULL; /* says which */
}

TEST(values_that_do_not_parse_are_refused_by_name) {
    CHECK(refused("shm.ring", "many"));
    CHECK(refused("shm.ring", ""));
    CHECK(refused("shm.ring", "-1"));
    CHECK(refused("shm.ring", "99999999999999999999"));
    CHECK(refused("shm.ring", "999999999t"));
    CHECK(refused("shm.ring", "17592186044417m")); /* 1 MiB more than 64 bits hold */
    CHECK(refused("shm.ring", "12 k"));
    CHECK(refused("connect.timeout", "5 parsecs"));
    CHECK(refused("tcp.insecure", "maybe"));
    CHECK(refused("worker.spin", "10k"));
    CHECK(refused("log.level", "loud"));
}

static bool is_reported(const char *what) {
    char text[1024];
    weft_status_describe(WEFT_ERR_INVALID_PARAM, text, sizeof text);
    return strstr(text, what) != NULL;
}

TEST(a_refused_value_is_described_with_its_source) {
    static const char *const names[] = {"log.level", "lanes.switch"}, *const variables[] = {
                                                                          "WEFT_LOG_LEVEL",
                                                                          "WEFT_LANES_SWITCH"};
    char path[64], line[64];
    for (int i = 0; i < 2; i++) {
        weft_setting_t mine = {names[i], "loud"};
        CHECK_EQ(create(&mine, 1, "/dev/null"), WEFT_ERR_INVALID_PARAM);
        CHECK(is_reported("params.settings[0]"));

        snprintf(line, sizeof line, "tcp.bind = 127.0.0.1\n%s = loud\n", names[i]);
        write_file(path, line);
        CHECK_EQ(create(NULL, 0, path), WEFT_ERR_INVALID_PARAM);
        CHECK(is_reported(path) && is_reported(":2\n"));
        unlink(path);

        setenv(variables[i], "loud", 1);
        CHECK_EQ(create(NULL, 0, "/dev/null"), WEFT_ERR_INVALID_PARAM);
        CHECK(is_reported(variables[i]));
        unsetenv(variables[i]);
    }
}

static bool is_sent_to_be_out_of_range(const char *name, const char *value) {
    char text[1024], what[256];
    snprintf(what, sizeof what, "%s is \"%s\", outside its range %s", name, value,
             info_of(name).range);
    weft_status_describe(WEFT_ERR_INVALID_PARAM, text, sizeof text);
    return strstr(text, what) != NULL;
}

/* The one error, whichever call set it. */
TEST(numbers_out_of_range_are_refused_with_name_value_and_range) {
    static const weft_setting_t out[] = {{"link.rails", "0"},
                                         {"link.rails", "99"},
                                         {"connect.timeout", "0"},
                                         {"close.timeout", "8761h"},
                                         {"lanes.capacity", "5000"},
                                         {"lanes.decay", "100"},
                                         {"lanes.factor", "100"},
                                         {"lanes.tick", "0ms"},
                                         {"rma.max_served", "127"},
                                         {"tcp.buffer", "4095"},
                                         {"tcp.dead_after", "19h"},
                                         {"shm.ring", "1t"},
                                         {"peer.max_unexpected", "4097m"},
                                         {"tag.unexpected_bytes", "63"},
                                         {"stream.window", "0"}};
    char path[64], line[128], variable[64];
    weft_context_t *all;
    CHECK_EQ(create(NULL, 0, "/dev/null"), WEFT_OK);
    all = context; /* to ask for ranges */
    for (unsigned i = 0; i < sizeof out / sizeof *out; i++) {
        CHECK_EQ(create(&out[i], 1, "/dev/null"), WEFT_ERR_INVALID_PARAM);
        CHECK(context == all && is_sent_to_be_out_of_range(out[i].name, out[i].value));

        snprintf(line, sizeof line, "%s = %s\n", out[i].name, out[i].value);
        write_file(path, line);
        CHECK_EQ(create(NULL, 0, path), WEFT_ERR_INVALID_PARAM);
        CHECK(is_sent_to_be_out_of_range(out[i].name, out[i].value));
        unlink(path);

        snprintf(variable, sizeof variable, "WEFT_%s", out[i].name);
        for (char *c = variable; *c; c++) *c = (char)(*c == '.' ? '_' : toupper((unsigned char)*c));
        setenv(variable, out[i].value, 1);
        CHECK_EQ(create(NULL, 0, "/dev/null"), WEFT_ERR_INVALID_PARAM);
        CHECK(is_sent_to_be_out_of_range(out[i].name, out[i].value));
        unsetenv(variable);
    }
    weft_context_destroy(all);
}

/* Each row's range is one: its ends are taken, and so is "auto" where it is a value. */
TEST(ranges_hold_their_own_ends) {
    size_t n = 0;
    CHECK_EQ(create(NULL, 0, "/dev/null"), WEFT_OK);
    weft_context_t *all = context;
    weft_setting_info_t info;
    for (size_t i = 0; weft_context_setting(all, i, &info) == WEFT_OK; i++) {
        char least[64];
        const char *dots = strstr(info.range, "..");
        CHECK(!*info.range == !dots);
        if (!dots) continue;
        snprintf(least, sizeof least, "%.*s", (int)(dots - info.range), info.range);
        const char *end[] = {least, dots + 2};
        for (int k = 0; k < 2; k++) {
            if (!*end[k]) continue;
            CHECK_EQ(create(&(weft_setting_t){info.name, end[k]}, 1, "/dev/null"), WEFT_OK);
            weft_context_destroy(context);
            n++;
        }
    }
    CHECK(n > 20);
    CHECK_EQ(create(&(weft_setting_t){"lanes.capacity", "auto"}, 1, "/dev/null"), WEFT_OK);
    weft_context_destroy(context);
    weft_context_destroy(all);
}

TEST(bad_files_are_refused_by_line) {
    char path[64], text[1024];
    write_file(path, "tcp.bind = ::1\nno equals sign\n");
    CHECK_EQ(create(NULL, 0, path), WEFT_ERR_INVALID_PARAM);
    weft_status_describe(WEFT_ERR_INVALID_PARAM, text, sizeof text);
    CHECK(strstr(text, ":2: not"));
    unlink(path);
    CHECK_EQ(create(NULL, 0, path), WEFT_ERR_NOT_FOUND);
    CHECK_EQ(create(NULL, 1, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_context_create(NULL, NULL), WEFT_ERR_INVALID_PARAM);
}

/* What stands far behind is no line of its own. */
TEST(lines_of_any_length_are_read_whole) {
    enum { LONG = 10000 };
    char path[32], text[3 * LONG], value[LONG + 1];
    memset(value, 'x', LONG);
    value[LONG] = 0;
    int len =
        snprintf(text, sizeof text, "# %.4093s tcp.insecure = yes\ntcp.rails = %s\n", value, value);
    CHECK(len > LONG && len < (int)sizeof text);
    write_file(path, text);
    forget_environment();
    CHECK_EQ(create(NULL, 0, path), WEFT_OK);
    CHECK(!strcmp(info_of("tcp.insecure").value, "no"));
    CHECK(!strcmp(info_of("tcp.rails").value, value));
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
    unlink(path);
}

TEST(a_file_that_finds_no_descriptor_is_not_taken_for_one_that_is_not_there) {
    descriptors_leave(0);
    weft_status_t st = create(NULL, 0, "/dev/null");
    descriptors_give_back();
    CHECK_EQ(st, WEFT_ERR_NO_FDS);
}

/* A newer program's longer struct is understood as long as it asks for nothing we do not know. */
TEST(params_may_be_shorter_or_longer) {
    struct {
        weft_context_params_t params;
        void *newer;
    } longer = {{.log = keep_line}, NULL};
    CHECK_EQ(weft_context_create_sized(sizeof longer, &longer.params, &context), WEFT_OK);
    weft_context_destroy(context);
    longer.newer = &longer;
    CHECK_EQ(weft_context_create_sized(sizeof longer, &longer.params, &context),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_context_create_sized(0, &longer.params, &context), WEFT_OK);
    weft_context_destroy(context);
}

TEST(each_failing_allocation_fails_the_creation) {
    weft__alloc_fail_at(0);
    CHECK_EQ(create(NULL, 0, "/dev/null"), WEFT_OK);
    uint64_t n = weft__alloc_fail_at(0);
    weft_context_destroy(context);
    CHECK(n > N_SETTINGS);
    for (uint64_t k = 1; k <= n; k++) {
        weft__alloc_fail_at(k);
        CHECK_EQ(create(NULL, 0, "/dev/null"), WEFT_ERR_NO_MEMORY);
    }
    weft__alloc_fail_at(0);
}

TEST(context_with_a_worker_is_busy) {
    struct reactor *r;
    CHECK_EQ(create(NULL, 0, "/dev/null"), WEFT_OK);
    CHECK_EQ(weft__reactor_create(context, &(struct reactor_params){.max_fds = 64}, &r), WEFT_OK);
    CHECK_EQ(weft_context_destroy(context), WEFT_ERR_BUSY);
    char text[256];
    weft_status_describe(WEFT_ERR_BUSY, text, sizeof text);
    CHECK(strstr(text, "1 worker is still open in this context"));
    weft__reactor_destroy(r);
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
}

TEST(log_keeps_to_its_level) {
    weft_setting_t info = {"log.level", "info"};
    CHECK_EQ(create(&info, 1, "/dev/null"), WEFT_OK);
    weft__log(context, WEFT_LOG_DEBUG, "room", "not this");
    weft__log(context, WEFT_LOG_INFO, "room", "but %s", "this");
    CHECK_EQ(n_lines, 1);
    CHECK(!strcmp(lines[0], "3 room but this"));
    CHECK(weft__log_wants(context, WEFT_LOG_ERROR) && !weft__log_wants(context, WEFT_LOG_TRACE));
    weft_context_destroy(context);
}

TEST(limited_log_states_how_much_it_kept_back) {
    CHECK_EQ(create(NULL, 0, "/dev/null"), WEFT_OK);
    for (int i = 0; i < 1000; i++) weft__log_limited(context, WEFT_LOG_WARN, "room", "flood %d", i);
    CHECK(n_lines >= 10 && n_lines <= 20); /* a second may have begun meanwhile */
    weft__log_limited(context, WEFT_LOG_WARN, "room", "another place");
    CHECK(logged("another place"));
    int before = n_lines;
    for (int i = 0; i < 30 && n_lines == before; i++, usleep(50000))
        weft__log_limited(context, WEFT_LOG_WARN, "room", "flood %d", -1);
    CHECK(n_lines == before || strstr(lines[before], "lines like it)"));
    weft_context_destroy(context);
}

TEST(counters_are_found_by_index_and_name) {
    struct counters counters = {.turns = 3, .am_sent = 5};
    const char *name, *help;
    uint64_t value;
    size_t n = 0;
    while (weft__counter_at(&counters, n, &name, &help, &value)) {
        CHECK_EQ(value, weft__counter_named(&counters, name));
        CHECK(*help);
        n++;
    }
    CHECK_EQ(n, sizeof counters / 8);
    CHECK_EQ(weft__counter_named(&counters, "am.sent"), 5);
    CHECK_EQ(weft__counter_named(&counters, "am.sunk"), 0);
}
