// Gloo's collectives of floats between processes over TCP on loopback, its only transport on one host:
// gloo_collectives OPERATION RANKS BYTES SECONDS [fresh], where BYTES are those of a block, or of the vector.
// OPERATION: barrier, allreduce, reduce, bcast, allgather, gather, scatter, alltoall; these are what Gloo gives to
// everybody, with its thread on the same core. And allreduce_busy, the quickest that it has for two ranks: pairs that poll
// their socket in the caller, which only its older algorithms can use.
// Each rank has a core of its own where there are enough. With `fresh` a rank writes what it gives before each operation,
// and the writing counts. Prints OPERATION TAB microseconds, the median of batches of 5 us, and of 16 operations at least.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "written.h"

using Reduce = void (*)(void *, const void *, const void *, size_t);

static double Now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static void Pin(int place, int ranks) {
    cpu_set_t allowed, chosen;
    CPU_ZERO(&chosen);
    sched_getaffinity(0, sizeof allowed, &allowed);
    if (ranks > CPU_COUNT(&allowed)) return;
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &allowed) && place-- == 0) CPU_SET(core, &chosen);
    sched_setaffinity(0, sizeof chosen, &chosen);
}

static std::shared_ptr<gloo::rendezvous::Context> Connect(int rank, int ranks, const std::string &folder, bool busy) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(folder);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    context->setTimeout(std::chrono::seconds(20));
    context->connectFullMesh(store, device);
    if (busy) context->getPair(1 - rank)->setSync(true, true);
    return context;
}

// One call of the operation; empty where there is no such one.
static std::function<void()> Operation(const std::string &name, std::shared_ptr<gloo::rendezvous::Context> context,
                                       float *in, float *out, size_t count) {
    const size_t ranks = context->size;
    const Reduce sum = static_cast<Reduce>(&gloo::sum<float>);
    if (name == "barrier") {
        auto options = std::make_shared<gloo::BarrierOptions>(context);
        return [options] { gloo::barrier(*options); };
    }
    if (name == "allreduce") {
        auto options = std::make_shared<gloo::AllreduceOptions>(context);
        options->setInput(in, count);
        options->setOutput(out, count);
        options->setReduceFunction(sum);
        return [options] { gloo::allreduce(*options); };
    }
    if (name == "allreduce_busy") { // in place
        auto busy = std::make_shared<gloo::AllreduceHalvingDoubling<float>>(context, std::vector<float *>{out},
                                                                           static_cast<int>(count));
        return [busy] { busy->run(); };
    }
    if (name == "reduce") {
        auto options = std::make_shared<gloo::ReduceOptions>(context);
        options->setInput(in, count);
        options->setOutput(out, count);
        options->setRoot(0);
        options->setReduceFunction(sum);
        return [options] { gloo::reduce(*options); };
    }
    if (name == "bcast") {
        auto options = std::make_shared<gloo::BroadcastOptions>(context);
        options->setOutput(out, count);
        options->setRoot(0);
        return [options] { gloo::broadcast(*options); };
    }
    if (name == "allgather") {
        auto options = std::make_shared<gloo::AllgatherOptions>(context);
        options->setInput(in, count);
        options->setOutput(out, count * ranks);
        return [options] { gloo::allgather(*options); };
    }
    if (name == "gather") {
        auto options = std::make_shared<gloo::GatherOptions>(context);
        options->setInput(in, count);
        if (context->rank == 0) options->setOutput(out, count * ranks);
        options->setRoot(0);
        return [options] { gloo::gather(*options); };
    }
    if (name == "scatter") {
        auto options = std::make_shared<gloo::ScatterOptions>(context);
        std::vector<float *> blocks;
        for (size_t r = 0; r < ranks; r++) blocks.push_back(in + r * count);
        if (context->rank == 0) options->setInputs(blocks, count);
        options->setOutput(out, count);
        options->setRoot(0);
        return [options] { gloo::scatter(*options); };
    }
    if (name == "alltoall") {
        auto options = std::make_shared<gloo::AlltoallOptions>(context);
        options->setInput(in, count * ranks);
        options->setOutput(out, count * ranks);
        return [options] { gloo::alltoall(*options); };
    }
    return {};
}

// What a rank writes before an operation: of that many floats at that place.
struct Given {
    float *at;
    size_t count;
};

static Given GivenBy(const std::string &name, int rank, int ranks, float *in, float *out, size_t count) {
    if (name == "barrier") return {in, 0};
    if (name == "allreduce_busy") return {out, count};
    if (name == "bcast") return {out, rank == 0 ? count : 0};
    if (name == "scatter") return {in, rank == 0 ? count * ranks : 0};
    return {in, name == "alltoall" ? count * ranks : count};
}

// Rank 0 plans; a barrier shows its plan to all.
static double Median(int rank, std::atomic<long> *plan, double seconds, const std::function<void()> &one,
                     const std::function<void()> &barrier) {
    for (int i = 0; i < 100; i++) one();
    double begin = Now();
    for (int i = 0; i < 100; i++) one();
    double each = (Now() - begin) / 100;
    if (rank == 0) {
        plan[0] = std::max(16L, static_cast<long>(5e-6 / each));
        plan[1] = static_cast<long>(seconds / each / plan[0]) + 1;
    }
    barrier();
    const long batch = plan[0], n = plan[1];
    std::vector<double> took(n);
    for (double &t : took) {
        begin = Now();
        for (long i = 0; i < batch; i++) one();
        t = (Now() - begin) / batch;
    }
    barrier();
    std::nth_element(took.begin(), took.begin() + n / 2, took.end());
    return took[n / 2];
}

// What the command line asks for.
struct Task {
    std::string name;
    int ranks;
    size_t count;
    double seconds;
    bool fresh;
};

static int Measure(int rank, const Task &task, const std::string &folder, std::atomic<long> *plan) {
    const bool busy = task.name == "allreduce_busy";
    auto context = Connect(rank, task.ranks, folder, busy);
    std::vector<float> in(task.count * task.ranks, 1), out(task.count * task.ranks, 1);
    auto one = Operation(task.name, context, in.data(), out.data(), task.count);
    auto barrier = busy ? one : Operation("barrier", context, nullptr, nullptr, 0); // of this pair, both poll
    if (!one) {
        fprintf(stderr, "gloo_collectives: no operation %s\n", task.name.c_str());
        return 1;
    }
    one();
    const bool sums = busy || task.name == "allreduce" || (task.name == "reduce" && rank == 0);
    if (sums && (out.front() != static_cast<float>(task.ranks) || out[task.count - 1] != out.front())) {
        fprintf(stderr, "gloo_collectives: the sum is wrong\n");
        return 1;
    }
    if (busy) std::fill(out.begin(), out.end(), 0.0f); // in place, ones would grow for ever

    const Given given = GivenBy(task.name, rank, task.ranks, in.data(), out.data(), task.count);
    long operation = 0;
    auto fresh_one = [&] {
        write_floats(given.at, given.count * sizeof(float), operation++);
        one();
    };
    double us = Median(rank, plan, task.seconds, task.fresh ? std::function<void()>(fresh_one) : one, barrier) * 1e6;
    if (rank == 0) printf("%s\t%.5g\n", task.name.c_str(), us);
    return fflush(stdout) == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "gloo_collectives OPERATION RANKS BYTES SECONDS [fresh]\n");
        return 2;
    }
    const Task task = {argv[1], atoi(argv[2]), std::max<size_t>(1, strtoul(argv[3], nullptr, 10) / sizeof(float)), atof(argv[4]),
                       argc > 5 && std::string(argv[5]) == "fresh"};
    void *shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    std::string folder = (std::filesystem::temp_directory_path() / "gloo.XXXXXX").string();
    if (task.ranks < 2 || (task.name == "allreduce_busy" && task.ranks != 2)) {
        fprintf(stderr, "gloo_collectives: two ranks at least, and two for allreduce_busy\n");
        return 2;
    }
    if (shared == MAP_FAILED || !mkdtemp(folder.data())) {
        perror("gloo_collectives");
        return 1;
    }
    std::vector<pid_t> processes(task.ranks);
    for (int rank = 0; rank < task.ranks; rank++) {
        processes[rank] = fork();
        if (processes[rank] != 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        Pin(rank, task.ranks);
        int code = 1;
        try {
            code = Measure(rank, task, folder, static_cast<std::atomic<long> *>(shared));
        } catch (const std::exception &e) {
            fprintf(stderr, "gloo_collectives: %s\n", e.what());
        }
        _exit(code); // a peer that has left already is no error
    }
    int code = 0, status;
    for (pid_t process : processes) code |= process < 0 || waitpid(process, &status, 0) < 0 || status != 0;
    std::filesystem::remove_all(folder);
    return code;
}
