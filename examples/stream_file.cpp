/*
 * Streams a file to several receivers until a deadline, in C++17, where each handle has an owner.
 * What a receiver has then is the beginning of the file, and it knows that there was more.
 *
 *     stream-file receive URI           writes what comes to standard output, ends with its sender
 *     stream-file send FILE MS URI…     prints how much of the file each receiver was sent
 */
#include <cstdio>
#include <deque>
#include <fstream>
#include <iostream>
#include <string>
#include <weft/view.hpp> /* weft::check and weft::error */
#include <weft/weft.h>

template <auto End> struct ends {
    template <class T> void operator()(T *handle) const { End(handle); }
};
using context = std::unique_ptr<weft_context_t, ends<weft_context_destroy>>;
using worker = std::unique_ptr<weft_worker_t, ends<weft_worker_destroy>>;

/* What was accepted leaves before the endpoint ends. */
struct flushes {
    void operator()(weft_ep_t *ep) const { weft_ep_close_wait(ep, WEFT_CLOSE_FLUSH); }
};
using endpoint = std::unique_ptr<weft_ep_t, flushes>;

struct session {
    context of;
    worker by; /* ends first */
    session() {
        weft_context_t *context = nullptr;
        weft_worker_t *worker = nullptr;
        weft::check(weft_context_create(nullptr, &context));
        of.reset(context);
        weft::check(weft_worker_create(context, nullptr, &worker));
        by.reset(worker);
    }
    void turn() const { weft::check(weft_worker_wait(by.get(), -1)); }
};

/* A receiver. It does not move: the operation refers to it. */
struct transfer {
    std::size_t sent = 0;
    weft_status_t status = WEFT_IN_PROGRESS;
    endpoint to; /* ends first */
    transfer(const session &in, const char *uri) {
        weft_ep_t *made = nullptr;
        weft::check(weft_connect(in.by.get(), uri, nullptr, &made));
        to.reset(made);
    }
    void begin(const std::uint64_t &size, const std::string &bytes, unsigned long ms) {
        weft_op_t op = {};
        op.deadline_ms = static_cast<std::uint32_t>(ms);
        op.arg = this;
        weft_iov_t head = {const_cast<std::uint64_t *>(&size), sizeof size};
        weft_iov_t body = {const_cast<char *>(bytes.data()), bytes.size()};
        weft::check(weft_stream_send(to.get(), &head, 1, &op));
        op.done = [](weft_status_t st, void *arg) { static_cast<transfer *>(arg)->status = st; };
        status = weft_stream_send_counted(to.get(), &body, 1, &sent, &op);
    }
};

static int send(const char *file, unsigned long ms, char **uris, int n) {
    std::ifstream in(file, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    const std::uint64_t size = bytes.size();
    session here;
    std::deque<transfer> all;
    for (int i = 0; i < n; i++) all.emplace_back(here, uris[i]).begin(size, bytes, ms);
    for (const transfer &one : all)
        while (one.status == WEFT_IN_PROGRESS) here.turn();
    for (const transfer &one : all)
        std::cout << one.sent << " of " << size << ' ' << weft_status_name(one.status) << '\n';
    return 0;
}

static int receive(const char *uri) {
    session here;
    endpoint from;
    weft_listener_t *listener = nullptr; /* ends with its worker */
    weft_listen_params_t params = {};
    params.on_endpoint = [](weft_ep_t *ep, void *to) { static_cast<endpoint *>(to)->reset(ep); };
    params.arg = &from;
    weft::check(weft_listen(here.by.get(), uri, &params, &listener));
    std::cerr << "listening at " << weft_listener_uri(listener) << '\n';
    while (!from) here.turn();
    weft_listener_close(listener); /* of one sender alone */
    std::uint64_t size = 0, got = 0;
    std::string some(1 << 20, 0);
    weft_iov_t head = {&size, sizeof size}, body = {some.data(), some.size()};
    std::size_t len = 0; /* the length was sent by itself, and comes whole */
    weft::check(weft_stream_recv_wait(from.get(), &head, 1, &len));
    while (weft_stream_recv_wait(from.get(), &body, 1, &len) == WEFT_OK)
        got += std::fwrite(some.data(), 1, len, stdout);
    std::cerr << got << " of " << size << (got == size ? "" : ": the sender gave up") << '\n';
    return 0;
}

int main(int argc, char **argv) try {
    if (argc == 3) return receive(argv[2]);
    if (argc > 4) return send(argv[2], std::stoul(argv[3]), argv + 4, argc - 4);
    std::cerr << "stream-file receive URI | send FILE MS URI...\n";
    return 2;
} catch (const weft::error &e) {
    std::cerr << e.what() << '\n';
    return 1;
}
