/*
 * A program that runs with more rights than its caller (setuid, file capabilities) takes no file
 * name, no place and no setting from the caller's environment. The test makes such a program of
 * itself.
 */
#define _GNU_SOURCE
#include "../harness.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <transports/trust.h>
#include <weft/weft.h>

enum { CALLER = 65534, NO_SETUID = 77 };

static char place[64] = "/tmp/weft_secure_XXXXXX";

static bool copy_self(const char *to) {
    char bytes[1 << 16];
    ssize_t n;
    int in = open("/proc/self/exe", O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_EXCL, 0755);
    while ((n = read(in, bytes, sizeof bytes)) > 0)
        if (write(out, bytes, (size_t)n) != n) return false;
    close(in);
    close(out);
    return chmod(to, 04755) == 0;
}

static void write_file(const char *name, const char *text) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", place, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static void be_caller(const char *program, const char *test, const char *variable,
                      const char *value) {
    char text[256];
    snprintf(text, sizeof text, "%s=%s", variable, value);
    char *argv[] = {(char *)program, (char *)test, NULL}, *env[] = {text, NULL};
    if (setresgid(CALLER, CALLER, CALLER) < 0 || setresuid(CALLER, CALLER, CALLER) < 0) _exit(2);
    execve(program, argv, env);
    _exit(2);
}

/* Runs that test in a setuid copy of this program, with one variable set by the caller. */
static void in_setuid_program(const char *test, const char *variable, const char *value) {
    char program[96];
    int status;
    if (geteuid() != 0) SKIP("needs root to be two users");
    strcpy(place, "/tmp/weft_secure_XXXXXX");
    CHECK(mkdtemp(place) && chmod(place, 0755) == 0);
    snprintf(program, sizeof program, "%s/program", place);
    CHECK(copy_self(program));
    write_file("config", "log.level = error\n");
    pid_t child = fork();
    if (child == 0) {
        char where[128];
        snprintf(where, sizeof where, value, place);
        be_caller(program, test, variable, where);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    unlink(program);
    snprintf(program, sizeof program, "%s/config", place);
    unlink(program);
    rmdir(place);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_SETUID) SKIP("no setuid programs here");
    CHECK_EQ(status, 0);
}

/* True in the setuid program. */
static bool is_inside(const char *test, const char *variable, const char *value) {
    if (getauxval(AT_SECURE)) return true;
    if (getuid() == CALLER) exit(NO_SETUID);
    in_setuid_program(test, variable, value);
    return false;
}

static weft_origin_t origin_of(const char *name) {
    weft_context_t *context;
    weft_setting_info_t info;
    weft_origin_t origin = WEFT_ORIGIN_DEFAULT;
    CHECK_EQ(weft_context_create(NULL, &context), WEFT_OK);
    for (size_t i = 0; weft_context_setting(context, i, &info) == WEFT_OK; i++)
        if (strcmp(info.name, name) == 0) origin = info.origin;
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
    return origin;
}

TEST(a_setuid_program_takes_no_setting_from_the_environment) {
    if (!is_inside("takes_no_setting", "WEFT_TCP_INSECURE", "yes")) return;
    CHECK_EQ(origin_of("tcp.insecure"), WEFT_ORIGIN_DEFAULT);
}

TEST(a_setuid_program_reads_no_file_that_the_environment_names) {
    if (!is_inside("reads_no_file", "WEFT_CONFIG", "%s/config")) return;
    CHECK_EQ(origin_of("log.level"), WEFT_ORIGIN_DEFAULT);
}

TEST(a_setuid_program_keeps_no_key_where_the_environment_points) {
    char path[512];
    if (!is_inside("where_the_environment_points", "XDG_CONFIG_HOME", "%s")) return;
    CHECK_EQ(weft__trust_key_path(NULL, path, sizeof path), WEFT_OK);
    CHECK(strstr(path, "weft_secure_") == NULL);
}

TEST(a_setuid_program_keeps_no_key_in_the_callers_home) {
    char path[512];
    if (!is_inside("in_the_callers_home", "HOME", "%s")) return;
    CHECK_EQ(weft__trust_key_path(NULL, path, sizeof path), WEFT_OK);
    CHECK(strstr(path, "weft_secure_") == NULL);
}
