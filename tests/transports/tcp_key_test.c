/* The key: made once, read by its owner alone, and enough for two of one user to know each
 * other. */
#define _GNU_SOURCE
#include "pair.h"
#include <ctype.h>
#include <fcntl.h>
#include <ftw.h>
#include <locale.h>
#include <openssl/evp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tests/support/scarce_descriptors.h>
#include <transports/tcp/key.h>

static char home[64];
static weft_context_t *context;
static char last_log[512];
static void keep_log(weft_log_level_t level, const char *room, const char *line, void *arg) {
    snprintf(last_log, sizeof last_log, "%s", line);
}

static bool insecure;
static void set_up(const char *key_file, const char *is_insecure) {
    insecure = strcmp(is_insecure, "yes") == 0;
    weft_setting_t settings[] = {{"tcp.key_file", key_file}, {"tcp.insecure", is_insecure}};
    weft_context_params_t params = {.settings = settings, .n_settings = 2, .log = keep_log};
    strcpy(home, "/tmp/weft-key-XXXXXX");
    CHECK(mkdtemp(home));
    setenv("HOME", home, 1);
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("XDG_RUNTIME_DIR");
    last_log[0] = 0;
    CHECK_EQ(weft_context_create(&params, &context), WEFT_OK);
}
static int remove_one(const char *path, const struct stat *s, int type, struct FTW *at) {
    return remove(path);
}
static void tear_down(void) {
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
    CHECK_EQ(nftw(home, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}
static void write_file(const char *path, const void *bytes, size_t len, mode_t mode) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, bytes, len) == (ssize_t)len && fchmod(fd, mode) == 0);
    close(fd);
}

static weft_status_t load(struct trust_key *key_p) {
    return weft__trust_key_load(context, insecure, key_p);
}

TEST(the_users_key_is_made_once_and_private) {
    struct trust_key first, second;
    char path[512];
    struct stat s;
    set_up("", "no");
    CHECK_EQ(load(&first), WEFT_OK);
    CHECK_EQ(first.trust, TRUST_USER);
    CHECK_EQ(weft__trust_key_path(context, path, sizeof path), WEFT_OK);
    CHECK(strncmp(path, home, strlen(home)) == 0 && strstr(path, "/.config/weft/key"));
    CHECK(stat(path, &s) == 0 && s.st_size == 32 && (s.st_mode & 0777) == 0600);
    CHECK_EQ(load(&second), WEFT_OK);
    CHECK(memcmp(first.bytes, second.bytes, TRUST_KEY) == 0);
    *strrchr(path, '/') = 0;
    CHECK(stat(path, &s) == 0 && (s.st_mode & 0777) == 0700);
    tear_down();
}

/* Instead of the C library's: where the file of the last call was, and how long. */
static struct stat synced;
static bool named_when_synced;
static char key_name[512];
int fsync(int fd) {
    named_when_synced = access(key_name, F_OK) == 0;
    return fstat(fd, &synced);
}

/* Else a crash leaves a name without its bytes, which every later process refuses. */
TEST(the_bytes_of_a_key_are_on_the_disk_before_it_has_its_name) {
    struct stat s;
    set_up("", "no");
    CHECK_EQ(weft__trust_key_path(context, key_name, sizeof key_name), WEFT_OK);
    synced = (struct stat){0};
    named_when_synced = true;
    CHECK_EQ(weft__trust_key_make(context, key_name), WEFT_OK);
    CHECK_EQ(stat(key_name, &s), 0);
    CHECK(synced.st_ino == s.st_ino && synced.st_dev == s.st_dev);
    CHECK_EQ(synced.st_size, TRUST_KEY);
    CHECK(!named_when_synced);
    tear_down();
}

/* The page that has it is wiped in a child, and when the key ends. */
TEST(a_forked_child_does_not_have_the_key) {
    static const uint8_t none[TRUST_KEY];
    struct trust_key key;
    set_up("", "no");
    CHECK_EQ(load(&key), WEFT_OK);
    CHECK(memcmp(key.bytes, none, TRUST_KEY) != 0);
    pid_t child = fork();
    if (child == 0) _exit(memcmp(key.bytes, none, TRUST_KEY) != 0);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    weft__trust_key_end(&key);
    CHECK(key.bytes == NULL);
    weft__trust_key_end(&key);
    tear_down();
}

/* Each of many that start at the same time makes a key; the first one wins, and all read that. */
TEST(processes_that_start_together_get_the_same_key) {
    enum { N = 8 };
    uint8_t keys[N][TRUST_KEY];
    int fds[2];
    set_up("", "no");
    CHECK_EQ(pipe(fds), 0);
    for (int i = 0; i < N; i++)
        if (fork() == 0) {
            struct trust_key key;
            _exit(load(&key) != WEFT_OK || write(fds[1], key.bytes, TRUST_KEY) != TRUST_KEY);
        }
    for (int i = 0; i < N; i++) {
        int status;
        CHECK(wait(&status) > 0 && status == 0);
        CHECK_EQ(read(fds[0], keys[i], TRUST_KEY), TRUST_KEY);
        CHECK(memcmp(keys[0], keys[i], TRUST_KEY) == 0);
    }
    close(fds[0]);
    close(fds[1]);
    tear_down();
}

TEST(a_key_others_may_read_is_refused) {
    uint8_t key[TRUST_KEY];
    char path[128];
    set_up("", "no");
    snprintf(path, sizeof path, "%s/key", home);
    static const mode_t loose[] = {0640, 0604, 0620, 0602, 0610, 0666, 0644};
    for (size_t i = 0; i < sizeof loose / sizeof *loose; i++) {
        write_file(path, "0123456789abcdef0123456789abcdef", 32, loose[i]);
        last_log[0] = 0;
        CHECK_EQ(weft__trust_key_read(context, path, key), WEFT_ERR_AUTH);
        CHECK(i >= 5 || strstr(last_log, "chmod 600")); /* the log is rate-limited */
    }
    write_file(path, "0123456789abcdef0123456789abcdef", 32, 0600);
    CHECK_EQ(weft__trust_key_read(context, path, key), WEFT_OK);
    write_file(path, "0123456789abcdef0123456789abcdef", 32, 0400);
    CHECK_EQ(weft__trust_key_read(context, path, key), WEFT_OK);
    tear_down();
}

TEST(a_key_that_finds_no_descriptor_ends_as_no_fds) {
    struct trust_key key;
    char path[512];
    set_up("", "no");
    CHECK_EQ(weft__trust_key_path(context, path, sizeof path), WEFT_OK);
    for (int is_made = 0; is_made < 2; is_made++) {
        descriptors_leave(0);
        weft_status_t st = load(&key);
        descriptors_give_back();
        CHECK_EQ(st, WEFT_ERR_NO_FDS);
        CHECK(strstr(last_log, path) && strstr(last_log, strerror(EMFILE)));
        last_log[0] = 0;
        CHECK_EQ(load(&key), WEFT_OK); /* it is there now */
    }
    tear_down();
}

TEST(a_file_that_is_no_key_is_refused) {
    uint8_t key[TRUST_KEY];
    static char long_one[5000];
    char path[128];
    set_up("", "no");
    snprintf(path, sizeof path, "%s/key", home);
    CHECK_EQ(weft__trust_key_read(context, path, key), WEFT_ERR_NOT_FOUND);
    write_file(path, "", 0, 0600);
    CHECK_EQ(weft__trust_key_read(context, path, key), WEFT_ERR_AUTH);
    write_file(path, "0123456789abcdef0123456789abcde", 31, 0600);
    CHECK_EQ(weft__trust_key_read(context, path, key), WEFT_ERR_AUTH);
    write_file(path, long_one, sizeof long_one, 0600);
    CHECK_EQ(weft__trust_key_read(context, path, key), WEFT_ERR_AUTH);
    CHECK_EQ(unlink(path), 0);
    CHECK_EQ(mkfifo(path, 0600), 0); /* and reading it would wait for ever */
    CHECK_EQ(weft__trust_key_read(context, path, key), WEFT_ERR_AUTH);
    CHECK_EQ(weft__trust_key_read(context, home, key), WEFT_ERR_AUTH); /* a directory */
    tear_down();
}

TEST(a_key_that_is_easily_guessed_is_refused) {
    static const char *const poor[] = {"correct horse battery", "00000000000000000000000000000000",
                                       "passwordpasswordpasswordpassword",
                                       "1234567890123456789012345678901234567890"};
    uint8_t key[TRUST_KEY];
    char path[128];
    set_up("", "no");
    snprintf(path, sizeof path, "%s/key", home);
    for (size_t i = 0; i < sizeof poor / sizeof *poor; i++) {
        write_file(path, poor[i], strlen(poor[i]), 0600);
        CHECK_EQ(weft__trust_key_read(context, path, key), WEFT_ERR_AUTH);
    }
    tear_down();
}

/* Text is no more than what its author thought of: a digest of it is not what the proofs are
 * made with. */
TEST(text_becomes_a_key_by_scrypt) {
    static const char text[] = "the cluster's own key, long enough";
    uint8_t key[TRUST_KEY], again[TRUST_KEY], digest[TRUST_KEY], binary[64];
    unsigned size = sizeof digest;
    char path[128];
    set_up("", "no");
    snprintf(path, sizeof path, "%s/key", home);
    write_file(path, text, strlen(text), 0600);
    CHECK_EQ(weft__trust_key_read(context, path, key), WEFT_OK);
    CHECK_EQ(weft__trust_key_read(context, path, again), WEFT_OK);
    CHECK(memcmp(key, again, sizeof key) == 0);
    CHECK(EVP_Digest(text, strlen(text), digest, &size, EVP_sha256(), NULL));
    CHECK(memcmp(key, digest, sizeof key) != 0);
    for (unsigned i = 0; i < sizeof binary; i++) binary[i] = (uint8_t)(i * 37);
    write_file(path, binary, sizeof binary, 0600);
    CHECK_EQ(weft__trust_key_read(context, path, key), WEFT_OK);
    CHECK(EVP_Digest(binary, sizeof binary, digest, &size, EVP_sha256(), NULL));
    CHECK(memcmp(key, digest, sizeof key) == 0);
    tear_down();
}

/* In some locales more bytes print than in others. */
TEST(the_key_of_a_file_is_the_same_in_every_locale) {
    uint8_t key[TRUST_KEY], again[TRUST_KEY];
    char path[128], make[160];
    set_up("", "no");
    snprintf(make, sizeof make, "localedef -i de_DE -f ISO-8859-1 %s/latin1 >/dev/null 2>&1", home);
    (void)!system(make);
    setenv("LOCPATH", home, 1);
    snprintf(path, sizeof path, "%s/key", home);
    write_file(path, "ein Schl\xfcssel f\xfcr alle, lang genug \xe4\xf6\xfc", 38, 0600);
    CHECK_EQ(weft__trust_key_read(context, path, key), WEFT_OK);
    bool is_there = setlocale(LC_CTYPE, "latin1") && isprint(0xfc);
    CHECK_EQ(weft__trust_key_read(context, path, again), WEFT_OK);
    setlocale(LC_CTYPE, "C");
    unsetenv("LOCPATH");
    tear_down();
    if (!is_there) SKIP("no locale where more bytes print can be made here");
    CHECK(memcmp(key, again, sizeof key) == 0);
}

TEST(another_users_key_is_refused) {
    uint8_t key[TRUST_KEY];
    char path[128];
    if (geteuid() != 0) SKIP("needs root to give a file away");
    set_up("", "no");
    snprintf(path, sizeof path, "%s/key", home);
    write_file(path, "0123456789abcdef0123456789abcdef", 32, 0600);
    CHECK_EQ(chown(path, 12345, 12345), 0);
    CHECK_EQ(weft__trust_key_read(context, path, key), WEFT_ERR_AUTH);
    tear_down();
}

/* The same for all processes of a user, whatever their environment: the home that the system
 * knows, then fixed places. */
TEST(without_a_home_the_key_finds_another_place) {
    char path[512], run[128], expected[512];
    set_up("", "no");
    const struct passwd *user = getpwuid(geteuid());
    if (!user || access(user->pw_dir, W_OK) < 0) SKIP("needs a home directory");
    snprintf(run, sizeof run, "%s/run", home);
    CHECK_EQ(mkdir(run, 0700), 0);
    snprintf(expected, sizeof expected, "%s/.config/weft/key", user->pw_dir);
    setenv("HOME", "/nonexistent", 1);
    setenv("XDG_RUNTIME_DIR", run, 1);
    CHECK_EQ(weft__trust_key_path(context, path, sizeof path), WEFT_OK);
    CHECK(strcmp(path, expected) == 0);
    unsetenv("XDG_RUNTIME_DIR");
    unsetenv("HOME");
    CHECK_EQ(weft__trust_key_path(context, path, sizeof path), WEFT_OK);
    CHECK(strcmp(path, expected) == 0);
    tear_down();
}

TEST(a_directory_that_others_may_write_is_passed_over) {
    char path[512], config[128];
    set_up("", "no");
    snprintf(config, sizeof config, "%s/.config", home);
    CHECK_EQ(mkdir(config, 0700), 0);
    strcat(config, "/weft");
    CHECK_EQ(mkdir(config, 0700), 0);
    CHECK_EQ(chmod(config, 0777), 0);
    CHECK_EQ(weft__trust_key_path(context, path, sizeof path), WEFT_OK);
    CHECK(strncmp(path, home, strlen(home)) != 0);
    tear_down();
}

TEST(the_cluster_key_wins_and_insecure_has_none) {
    struct trust_key key;
    char path[64];
    strcpy(path, "/tmp/weft-cluster-XXXXXX");
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, "the cluster's own key, long enough", 34) == 34);
    close(fd);
    set_up(path, "yes");
    CHECK_EQ(load(&key), WEFT_OK);
    CHECK_EQ(key.trust, TRUST_CLUSTER);
    tear_down();
    set_up("", "yes");
    CHECK_EQ(load(&key), WEFT_OK);
    CHECK_EQ(key.trust, TRUST_ANYONE);
    tear_down();
    CHECK_EQ(unlink(path), 0);
    set_up(path, "yes"); /* a key that was asked for and is missing is no reason to do without */
    CHECK(load(&key) < 0);
    tear_down();
}

TEST(a_proof_depends_on_key_role_and_every_byte_sent) {
    uint8_t bytes[TRUST_KEY] = {0};
    struct trust_key key = {.trust = TRUST_USER, .bytes = bytes};
    uint8_t hello[TCP_HELLO_SIZE] = {0}, challenge[TCP_CHALLENGE_SIZE] = {0}, proof[TCP_PROOF],
            other[TCP_PROOF];
    CHECK_EQ(weft__tcp_prove(&key, TCP_ROLE_DIALER, hello, challenge, proof), WEFT_OK);
    CHECK_EQ(weft__tcp_prove(&key, TCP_ROLE_DIALER, hello, challenge, other), WEFT_OK);
    CHECK(weft__trust_proof_equal(proof, other));
    CHECK_EQ(weft__tcp_prove(&key, TCP_ROLE_ACCEPTOR, hello, challenge, other), WEFT_OK);
    CHECK(!weft__trust_proof_equal(proof, other));
    for (size_t i = 0; i < sizeof hello + sizeof challenge + TRUST_KEY; i++) {
        bool counts =
            /* not the acceptor's own proof */
            i < sizeof hello + 64 || i >= sizeof hello + sizeof challenge;
        uint8_t *byte = i < sizeof hello ? &hello[i]
                        : i < sizeof hello + sizeof challenge
                            ? &challenge[i - sizeof hello]
                            : &key.bytes[i - sizeof hello - sizeof challenge];
        *byte ^= 1;
        CHECK_EQ(weft__tcp_prove(&key, TCP_ROLE_DIALER, hello, challenge, other), WEFT_OK);
        CHECK_EQ(!weft__trust_proof_equal(proof, other), counts);
        *byte ^= 1;
    }
    for (size_t i = 0; i < TCP_PROOF; i++) {
        memcpy(other, proof, TCP_PROOF);
        other[i] ^= 0x80;
        CHECK(!weft__trust_proof_equal(proof, other));
    }
}

TEST(workers_without_a_usable_key_do_not_connect) {
    struct pair p;
    uint8_t address[96];
    size_t len = sizeof address;
    char path[64];
    strcpy(path, "/tmp/weft-loose-XXXXXX");
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, "the cluster's own key, long enough", 34) == 34 &&
          fchmod(fd, 0644) == 0);
    close(fd);
    weft_setting_t settings[] = {{"tcp.key_file", path}};
    pair_open_with(&p, &weft__transport_tcp, 0, settings, 1);
    CHECK_EQ(p.iface_b->ops->address(p.iface_b, address, &len), WEFT_ERR_AUTH);
    struct lane *lane;
    CHECK_EQ(p.iface_a->ops->connect_uri(p.iface_a, "127.0.0.1:80", &lane), WEFT_ERR_AUTH);
    CHECK_EQ(chmod(path, 0600), 0);
    pair_connect(&p);
    pair_close(&p);
    CHECK_EQ(unlink(path), 0);
}
