// Gloo's allreduce of floats between two pinned processes over TCP on loopback: gloo_allreduce async|busy BYTES SECONDS
// "async" is what gloo::allreduce gives to everybody, with its thread on the same core; "busy" is the quickest Gloo
// has: pairs that poll their socket in the caller, which only its older algorithms can use.
// Prints allreduce TAB microseconds, the median.
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
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

static constexpr int kRanks = 2;

static double Now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// To the `place`-th core that this process may use; threads made later inherit it.
static void Pin(int place) {
    cpu_set_t allowed, chosen;
    CPU_ZERO(&chosen);
    sched_getaffinity(0, sizeof allowed, &allowed);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &allowed) && place-- == 0) CPU_SET(core, &chosen);
    if (sched_setaffinity(0, sizeof chosen, &chosen) < 0) {
        perror("gloo_allreduce: two cores are needed");
        _exit(1);
    }
}

static std::shared_ptr<gloo::rendezvous::Context> Connect(int rank, const std::string &folder, bool busy) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(folder);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, kRanks);
    context->setTimeout(std::chrono::seconds(20));
    context->connectFullMesh(store, device);
    if (busy) context->getPair(1 - rank)->setSync(true, true);
    return context;
}

// The median of batches of some 5 us, and of 16 at least, as one may find its peer ahead. Rank 0 plans; the other sees the plan after the allreduce that follows it.
static double Median(int rank, std::atomic<long> *plan, double seconds, const std::function<void()> &one) {
    for (int i = 0; i < 100; i++) one();
    double begin = Now();
    for (int i = 0; i < 500; i++) one();
    double each = (Now() - begin) / 500;
    if (rank == 0) {
        plan[0] = std::max(16L, static_cast<long>(5e-6 / each));
        plan[1] = static_cast<long>(seconds / each / plan[0]) + 1;
    }
    one();

    const long batch = plan[0], n = plan[1];
    std::vector<double> took(n);
    for (double &t : took) {
        begin = Now();
        for (long i = 0; i < batch; i++) one();
        t = (Now() - begin) / batch;
    }
    std::nth_element(took.begin(), took.begin() + n / 2, took.end());
    return took[n / 2];
}

static int Measure(int rank, const std::string &folder, bool busy, size_t count, double seconds,
                   std::atomic<long> *plan) {
    auto context = Connect(rank, folder, busy);
    std::vector<float> in(count, 1), out(count, 1);
    gloo::AllreduceOptions options(context);
    options.setInput(in.data(), count);
    options.setOutput(out.data(), count);
    options.setReduceFunction(static_cast<void (*)(void *, const void *, const void *, size_t)>(&gloo::sum<float>));
    std::unique_ptr<gloo::AllreduceHalvingDoubling<float>> in_place;
    if (busy)
        in_place = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(
            context, std::vector<float *>{out.data()}, static_cast<int>(count));
    auto one = [&] { busy ? in_place->run() : gloo::allreduce(options); };

    one();
    if (out.front() != kRanks || out.back() != kRanks) {
        fprintf(stderr, "gloo_allreduce: the sum is wrong\n");
        return 1;
    }
    std::fill(out.begin(), out.end(), 0.0f); // in place, ones would grow for ever
    double us = Median(rank, plan, seconds, one) * 1e6;
    if (rank == 0) printf("allreduce\t%.5g\n", us);
    return fflush(stdout) == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "gloo_allreduce async|busy BYTES SECONDS\n");
        return 2;
    }
    const bool busy = std::string(argv[1]) == "busy";
    const size_t count = strtoul(argv[2], nullptr, 10) / sizeof(float);
    const double seconds = atof(argv[3]);
    void *shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    std::string folder = (std::filesystem::temp_directory_path() / "gloo.XXXXXX").string();
    if (count == 0 || shared == MAP_FAILED || !mkdtemp(folder.data())) {
        perror("gloo_allreduce");
        return 1;
    }
    pid_t ranks[kRanks];
    for (int rank = 0; rank < kRanks; rank++) {
        ranks[rank] = fork();
        if (ranks[rank] != 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        Pin(rank);
        int code = 1;
        try {
            code = Measure(rank, folder, busy, count, seconds, static_cast<std::atomic<long> *>(shared));
        } catch (const std::exception &e) {
            fprintf(stderr, "gloo_allreduce: %s\n", e.what());
        }
        _exit(code); // a peer that has left already is no error
    }
    int code = 0, status;
    for (pid_t rank : ranks) code |= rank < 0 || waitpid(rank, &status, 0) < 0 || status != 0;
    std::filesystem::remove_all(folder);
    return code;
}
