#!/bin/bash
# weft/view.hpp from outside: what ParallelZone's documents say of its RuntimeView, one test each.
. tests/check.sh

cat >"$scratch/program.cpp" <<'PROGRAM'
#include <array>
#include <atomic>
#include <complex>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <new>
#include <string>
#include <utility>
#include <vector>
#include <weft/graph.hpp>
#include <weft/view.hpp>

#define MUST(held) \
    if (!(held)) throw std::logic_error("line " + std::to_string(__LINE__) + ": not " #held)

template <class Call> bool throws_range(Call call) {
    try {
        call();
    } catch (const std::out_of_range &) {
        return true;
    }
    return false;
}

static void null_view() {
    weft::runtime_view null(nullptr);
    MUST(null.null() && null.size() == 0 && !null.has_me() && null.engine() == "null");
    MUST(throws_range([&] { null.at(0); }) && throws_range([&] { null.my_resource_set(); }));
    MUST(null == weft::runtime_view(nullptr) && null != weft::get_runtime());
}

static void range_errors() {
    auto rt = weft::get_runtime();
    MUST(throws_range([&] { rt.at(rt.size()); }));
    MUST(throws_range([&] { rt.at(0).gpu(rt.at(0).n_gpus()); }));
    rt.barrier();
}

static void copies_and_moves() {
    int calls = 0;
    {
        weft::runtime_view first;
        first.stack_callback([&] { calls++; });
        weft::runtime_view copy(first), assigned(nullptr);
        MUST(copy == first && copy.c_view() == first.c_view());
        assigned = copy;
        weft::runtime_view moved(std::move(copy));
        MUST(moved == first && copy.null());
        weft::runtime_view other(nullptr);
        other.swap(moved);
        MUST(moved.null() && other == first);
        assigned = weft::runtime_view(nullptr);
        first.reset();
        MUST(calls == 0 && other.size() > 0); /* one copy is left */
        auto set = other.at(0);
        other.barrier();
        other.reset();
        MUST(set.rank() == 0 && calls == 0); /* a set keeps its view */
    }
    MUST(calls == 1);
}

static void equality() {
    weft::runtime_view one, other;
    MUST(one == other && one.c_view() != other.c_view());
    auto a = one.at(0), b = other.at(0);
    MUST(a == b && a.ram() == b.ram());
    if (one.size() > 1) MUST(one.at(0) != one.at(1));
    one.barrier();
}

/* What is not known is no one's but its own. */
static void equality_of_what_is_unknown() {
    weft_resource_set_t a = {}, b = {};
    a.process_id = 1, b.process_id = 2;
    a.n_gpus = b.n_gpus = 2;
    weft::ram ram_a(nullptr, &a), ram_b(nullptr, &b);
    weft::gpu gpu_a(nullptr, &a, 0), next(nullptr, &a, 1), gpu_b(nullptr, &b, 0);
    MUST(ram_a == ram_a && ram_a != ram_b && gpu_a == gpu_a && gpu_a != next && gpu_a != gpu_b);
    a.ram_id = b.ram_id = a.gpu[0].id = b.gpu[0].id = 7;
    MUST(ram_a == ram_b && gpu_a == gpu_b && gpu_a != next);
}

static void sharers() {
    auto rt = weft::get_runtime();
    auto set = rt.at(rt.size() - 1);
    MUST(rt.count(set) == rt.size() && rt.count(set.ram()) == rt.size());
    MUST(set.ram().total_space() > set.ram().used_space());
    rt.barrier();
}

static void one_times_two_plus_one() {
    int value = 1;
    {
        weft::runtime_view rt;
        rt.stack_callback([&] { value += 1; });
        rt.stack_callback([&] { value *= 2; });
    }
    MUST(value == 3);
}

static void unequal_strings() {
    auto rt = weft::get_runtime();
    auto all = rt.gather(std::string(rt.rank() * 1000, 'x'));
    MUST(all.size() == rt.size());
    for (std::uint32_t r = 0; r < rt.size(); r++) MUST(all[r] == std::string(r * 1000, 'x'));
    auto words = rt.gather(std::vector<std::string>(rt.rank(), "word"));
    MUST(words[rt.size() - 1].size() == rt.size() - 1);
}

static void root_only() {
    auto rt = weft::get_runtime();
    auto ram = rt.at(rt.size() - 1).ram();
    bool mine = rt.rank() == rt.size() - 1;
    MUST(ram.gather(rt.rank()).has_value() == mine);
    auto sum = ram.reduce(1, std::plus<int>());
    MUST(sum.has_value() == mine && (!mine || *sum == (int)rt.size()));
    MUST(ram.bcast(std::string("said by ") + std::to_string(rt.rank())) ==
         "said by " + std::to_string(rt.size() - 1));
    try {
        rt.my_resource_set().ram().gather(rt.rank());
        MUST(rt.size() == 0);
    } catch (const weft::error &e) {
        MUST(e.status() == WEFT_ERR_INVALID_PARAM);
    }
}

/* Texts of unequal lengths go from rank to rank; each appends to them, the first sends none. */
static void pipeline() {
    auto rt = weft::get_runtime();
    std::uint32_t me = rt.rank(), n = rt.size();
    for (int turn = 0; turn < 3; turn++) {
        std::string text, expected;
        for (std::uint32_t r = 0; r < me; r++) expected += std::string(r * 1000, 'a' + (char)r);
        if (me > 0) text = rt.at(me - 1).ram().receive<std::string>(7);
        MUST(text == expected);
        text += std::string(me * 1000, 'a' + (char)me);
        if (me + 1 < n) rt.at(me + 1).ram().send(text, 7);
    }
    try {
        rt.at(me).ram().send(me);
        MUST(n == 0);
    } catch (const weft::error &e) {
        MUST(e.status() == WEFT_ERR_INVALID_PARAM); /* to oneself */
    }
    rt.barrier();
}

static void parts() {
    auto rt = weft::get_runtime();
    auto half = rt.split(rt.rank() % 2);
    MUST(half.size() == (rt.size() + 1 - rt.rank() % 2) / 2 && half.rank() == rt.rank() / 2);
    MUST(rt.split(rt.rank() ? WEFT_NO_COLOUR : 0).null() == (rt.rank() > 0));
    auto host = rt.partition(WEFT_BY_HOST);
    MUST(host == rt && host.reduce(1, std::plus<int>()) == (int)rt.size());
}

/* Results of weft::graph without a view are objects of one process. */
static void graphs() {
    auto rt = weft::get_runtime();
    weft_graph_params_t params = {};
    weft::graph alone(params);
    auto one = alone.add([] { return 1; });
    auto two = alone.add([](int n) { return n + 1; }, one);
    alone.run();
    MUST(two.get() == 2);
    bool refuses = false;
    auto third = alone.add([&](int n) { return refuses ? throw std::domain_error("no") : n + 1; }, two);
    auto fourth = alone.add([&](int n) {
        try {
            alone.run(); /* it runs: refused, and no result is lost by that */
        } catch (const weft::error &e) {
            MUST(e.status() == WEFT_ERR_BUSY && third.has_value());
        }
        return n + 1;
    }, third);
    alone.run();
    MUST(fourth.get() == 4);
    refuses = true;
    try {
        alone.run();
        MUST(rt.null());
    } catch (const std::domain_error &) {
        MUST(!third.has_value() && !fourth.has_value()); /* nor what an earlier run had */
    }
    params.team = weft_view_team(rt.c_view());
    try {
        weft::graph together(params);
        MUST(rt.null());
    } catch (const weft::error &e) {
        MUST(e.status() == WEFT_ERR_UNSUPPORTED);
    }
}

/* The allocation that fails; 0: none. */
static long fails_in;
void *operator new(std::size_t n) {
    void *at = fails_in && --fails_in == 0 ? nullptr : std::malloc(n ? n : 1);
    if (!at) throw std::bad_alloc();
    return at;
}
void operator delete(void *at) noexcept {
    std::free(at);
}
void operator delete(void *at, std::size_t) noexcept {
    std::free(at);
}

/* A task that could not be added is not run. */
static void graphs_without_memory() {
    for (bool added = false; !added; ) {
        static long k;
        weft::graph graph;
        int calls = 0;
        fails_in = ++k;
        try {
            graph.add([&] { calls++; });
            added = true;
        } catch (const std::bad_alloc &) {
        }
        fails_in = 0;
        graph.run();
        MUST(calls == added);
    }
}

struct pose {
    std::array<std::array<long, 2>, 2> row;
};

static void graphs_over_the_view() {
    auto rt = weft::get_runtime();
    std::uint32_t n = rt.size(), last = n - 1;
    weft::graph graph(rt);
    std::vector<weft::task<std::uint32_t>> ranks;
    for (std::uint32_t r = 0; r < n; r++) ranks.push_back(graph.add_at(rt.at(r), [&] { return rt.rank() + 1; }));
    auto sum = ranks[0];
    for (std::uint32_t r = 1; r < n; r++)
        sum = graph.add([](std::uint32_t a, std::uint32_t b) { return a + b; }, sum, ranks[r]);
    auto at_last = graph.add_at(rt.at(last), [](const std::uint32_t &all) { return pose{{{{{all, 0}}, {{0, 1}}}}}; }, sum);
    std::atomic<int> calls(0);
    auto none = graph.add_at(rt.at(0), [&](const pose &) { calls++; }, at_last);
    for (int run = 1; run <= 2; run++) {
        graph.run();
        MUST(ranks[rt.rank()].has_value() && ranks[rt.rank()].get() == rt.rank() + 1);
        MUST(!at_last.has_value() || at_last.get().row[0][0] == (long)(n * (n + 1) / 2));
        MUST(at_last.has_value() || (rt.rank() != last && rt.rank() != 0));
        MUST(calls == (rt.rank() == 0 ? run : 0) && none.has_value() == (rt.rank() == 0));
    }
    try {
        graph.add([](std::uint32_t all) { return std::to_string(all); }, sum);
        MUST(rt.null());
    } catch (const weft::error &e) {
        MUST(e.status() == WEFT_ERR_UNSUPPORTED);
    }
    auto refused = graph.add_at(rt.at(last), [](std::uint32_t) -> int { throw std::domain_error("no"); }, sum);
    try {
        graph.run();
        MUST(rt.null());
    } catch (const std::domain_error &) {
        MUST(rt.rank() == last);
    } catch (const weft::error &e) {
        MUST(rt.rank() != last && e.status() == WEFT_ERR_REJECTED);
    }
    MUST(!refused.has_value() && !sum.has_value()); /* nor what an earlier run had */
    try {
        weft::graph nowhere{weft::runtime_view(nullptr)};
        MUST(rt.null());
    } catch (const weft::error &e) {
        MUST(e.status() == WEFT_ERR_INVALID_PARAM);
    }
    rt.barrier();
}

static void logging() {
    weft_logger_params_t params = {};
    auto rt = weft::get_runtime();
    weft::logger program(rt), none(nullptr);
    program.info("rank 0 speaks");
    none.error("nothing is written");
    params.level = WEFT_LOG_ERROR;
    rt.logger().info("rank 0 speaks again");
    rt.logger(params).info("nothing is written");
}

/* It does not commute. */
static pose after(const pose &a, const pose &b) {
    pose made = {};
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            for (int k = 0; k < 2; k++) made.row[i][j] += a.row[i][k] * b.row[k][j];
    return made;
}

static pose of_rank(std::uint32_t r) {
    return {{{{{1, (long)r + 1}}, {{(long)r, 2}}}}};
}

static void reductions_of_the_programs_own() {
    auto rt = weft::get_runtime();
    auto n = rt.size();
    pose expected = of_rank(0);
    for (std::uint32_t r = 1; r < n; r++) expected = after(expected, of_rank(r));
    MUST(rt.reduce(of_rank(rt.rank()), after).row == expected.row);
    MUST(rt.reduce(of_rank(rt.rank()), &after).row == expected.row);
    auto at_last = rt.at(n - 1).ram().reduce(std::vector<pose>(300, of_rank(rt.rank())), after);
    MUST(at_last.has_value() == (rt.rank() == n - 1));
    if (at_last) MUST((*at_last)[299].row == expected.row);

    int scale = 3; /* what a lambda holds is this process's, and of this call */
    auto scaled = [&](int a, int b) { return a + b + 0 * scale; };
    for (int i = 0; i < 3; i++) MUST(rt.reduce(1, scaled) == (int)n);
    auto sum = rt.reduce(std::complex<double>(1, rt.rank()), std::plus<std::complex<double>>());
    MUST(sum == std::complex<double>(n, n * (n - 1) / 2));
    MUST(rt.reduce(std::array<int, 2>{1, (int)rt.rank()}, weft::maximum<std::array<int, 2>>())[1] == (int)n - 1);
    MUST(rt.reduce(rt.rank() > 0, std::logical_or<bool>()) == (n > 1));
    MUST(rt.reduce(std::vector<int>(), scaled).empty());
    bool any = rt.reduce(true, std::plus<bool>());
    MUST(*reinterpret_cast<unsigned char *>(&any) == 1);
    const __int128 big = static_cast<__int128>(1) << 100;
    MUST(rt.reduce(big + rt.rank(), std::plus<__int128>()) == big * n + n * (n - 1) / 2);
    MUST(rt.reduce(static_cast<__float128>(0.5), std::plus<__float128>()) == 0.5 * n);
    try {
        weft::runtime_view(nullptr).reduce(1, scaled);
        MUST(n == 0);
    } catch (const weft::error &e) {
        MUST(e.status() == WEFT_ERR_INVALID_PARAM);
    }
    rt.barrier();
}

/* The view is of no use afterwards, and ends as others do. */
static void a_reduction_that_throws() {
    auto rt = weft::get_runtime();
    auto part = rt.split(0);
    auto refuse = [](int, int) -> int { throw std::domain_error("refused"); };
    try {
        part.reduce(1, refuse); /* a process that it did not run in may have a result */
    } catch (const std::domain_error &e) {
        MUST(e.what() == std::string("refused"));
    } catch (const weft::error &e) {
        MUST(e.status() == WEFT_ERR_REVOKED);
    }
    try {
        part.barrier();
        MUST(rt.size() == 1);
    } catch (const weft::error &e) {
        MUST(e.status() == WEFT_ERR_REVOKED);
    }
    rt.barrier();
}

/* Memory that the program has; of a GPU: examples/view_gpu.cpp. */
static void rows_of_memory() {
    auto rt = weft::get_runtime();
    std::uint32_t n = rt.size(), me = rt.rank();
    std::vector<float> row(100, (float)me), all(100 * n), column(100 * n), sum(100);
    rt.gather(row.data(), row.size(), all.data());
    for (std::uint32_t i = 0; i < 100 * n; i++) MUST(all[i] == (float)(i / 100));
    rt.reduce(row.data(), sum.data(), row.size(), std::plus<float>());
    MUST(sum[99] == (float)(n * (n - 1) / 2));
    for (auto &x : all) x = x * 1000 + (float)me;
    rt.alltoall(all.data(), 100, column.data());
    for (std::uint32_t i = 0; i < 100 * n; i++) MUST(column[i] == (float)(me * 1000 + i / 100));
    rt.barrier();
}

int main() try {
    auto rt = weft::get_runtime();
    null_view();
    range_errors();
    copies_and_moves();
    equality();
    equality_of_what_is_unknown();
    sharers();
    one_times_two_plus_one();
    unequal_strings();
    root_only();
    pipeline();
    parts();
    graphs();
    graphs_without_memory();
    graphs_over_the_view();
    reductions_of_the_programs_own();
    a_reduction_that_throws();
    rows_of_memory();
    logging();
    if (rt.rank() == 0) std::cout << "well\n";
    return 0;
} catch (const std::exception &e) {
    std::cerr << e.what() << '\n';
    return 1;
}
PROGRAM

build() {
    command -v c++ >/dev/null || skip "no C++ compiler here"
    library=$(find -L . -maxdepth 2 -name libweft.so | head -1)
    [ -n "$library" ] || fail "libweft.so is not built"
    ln -sf "$(realpath "$library")" "$scratch/libweft.so.0"
    export LD_LIBRARY_PATH=$scratch
    c++ -std=gnu++17 -Wall -Wextra -Werror -Wno-missing-field-initializers -Iinclude -o "$scratch/program" \
        "$scratch/program.cpp" "$library" || fail "it does not compile"
}

test_what_parallelzone_promises_holds_for_one_process() {
    build
    expect said "$(timeout 200 "$scratch/program" 2>&1 | grep -v '^$' | sed 's/.*: rank/rank/')" $'rank 0 speaks\nrank 0 speaks again\nwell'
}

test_what_parallelzone_promises_holds_for_three_processes() {
    build
    said=$(timeout 200 "$bin/tools/weft-run" -n 3 "$scratch/program" 2>&1) || fail "$said"
    expect speakers "$(grep -c 'rank 0 speaks' <<<"$said")" 2
    has end "$said" 'well$'
}

run_tests
