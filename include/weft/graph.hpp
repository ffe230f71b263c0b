/*
 * Task graphs for C++17, in one header: functions and lambdas as tasks, on the threads of this
 * process, or over all processes of a view. Errors are thrown as weft::error; an exception of a
 * task is thrown by graph::run. Tasks that name a processor or a GPU are for weft/graph.h.
 */
#ifndef WEFT_GRAPH_HPP
#define WEFT_GRAPH_HPP

#if __cplusplus < 201703L
#error "weft/graph.hpp needs C++17"
#endif

#include <atomic>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>
#include <weft/graph.h>
#include <weft/view.hpp>

namespace weft {

class graph;

/* A task whose result is an R; `void` counts as std::monostate. A copy names the same task. */
template <class R> class task {
  public:
    /* The result of the last run. Valid until the next run, and as long as a copy of the task.
     * Throws std::bad_optional_access if this process has none. Over a view, the process has it
     * that runs the task, and those that run successors of it. */
    const R &get() const { return value_->value(); }
    bool has_value() const noexcept { return value_->has_value(); }
    weft_task_t id() const noexcept { return id_; }

  private:
    friend class graph;
    weft_task_t id_ = WEFT_NO_TASK;
    std::shared_ptr<std::optional<R>> value_ = std::make_shared<std::optional<R>>();
};

/* Not copied and not moved: tasks that run refer to it. Its functions are called as those of
 * weft/graph.h. */
class graph {
  public:
    /* On the threads of this process. UNSUPPORTED with params.team. */
    explicit graph(const weft_graph_params_t &params = {}) {
        if (params.team)
            throw error(WEFT_ERR_UNSUPPORTED, "weft::graph: params.team: give it the view");
        check(weft_graph_create(&params, &graph_));
    }
    /* Over all processes of the view, which the graph keeps: each adds the same tasks, and runs its
     * own. Results are plain objects, and go to the processes that have successors of them. */
    explicit graph(const runtime_view &view, weft_graph_params_t params = {}) : view_(view) {
        params.team = weft_view_team(view.c_view());
        if (!params.team) throw error(WEFT_ERR_INVALID_PARAM, "weft::graph: the view is null");
        check(weft_graph_create(&params, &graph_));
    }
    ~graph() { weft_graph_destroy(graph_); }
    graph(const graph &) = delete;
    graph &operator=(const graph &) = delete;

    /*
     * Adds function(const In &...), which is called with the results of `inputs` when they are
     * done, on any thread. It is called again in each run. Over a view, the process that makes the
     * largest input runs it. UNSUPPORTED there for inputs and results that are not trivially
     * copyable, or are aligned to more than 16 bytes.
     */
    template <class F, class... In> auto add(F function, const task<In> &...inputs) {
        return add_task({}, std::move(function), inputs...);
    }
    /* The same, at the process that owns `where`, a set of the graph's view. */
    template <class F, class... In>
    auto add_at(const resource_set &where, F function, const task<In> &...inputs) {
        weft_task_params_t params = {};
        params.on_rank = 1;
        params.rank = where.rank();
        return add_task(params, std::move(function), inputs...);
    }

    /* Runs all tasks, and takes part. Throws what the first task that failed has thrown; over a
     * view, at other processes than the task's, weft::error. BUSY, and no effect, while it runs. */
    void run() {
        if (runs_.exchange(true)) throw error(WEFT_ERR_BUSY, "weft::graph: the graph runs");
        const run_end end{runs_};
        exception_ = nullptr;
        thrown_ = false;
        for (auto &one : steps_) one->forget();
        weft_status_t status = weft_graph_run_wait(graph_);
        if (exception_) std::rethrow_exception(exception_);
        check(status);
        for (auto &one : steps_) one->collect(graph_);
    }

    /* For the other functions of weft/graph.h. */
    weft_graph_t *handle() const noexcept { return graph_; }

  private:
    struct run_end {
        std::atomic<bool> &runs;
        ~run_end() { runs = false; }
    };

    struct step {
        virtual ~step() = default;
        virtual void call(weft_task_call_t *call) = 0;
        virtual void forget() {}
        virtual void collect(weft_graph_t *) {}
        graph *owner = nullptr;
    };

    /* Its values are objects of this process, which live as long as the graph. */
    template <class R, class F, class... In> struct local_step : step {
        local_step(F f, const task<R> &to, const task<In> &...from)
            : function(std::move(f)), value(to.value_), args(from.value_...) {}
        void call(weft_task_call_t *) override {
            std::apply(
                [&](const auto &...arg) {
                    if constexpr (std::is_void<std::invoke_result_t<F &, const In &...>>::value) {
                        function(arg->value()...);
                        value->emplace();
                    } else {
                        value->emplace(function(arg->value()...));
                    }
                },
                args);
        }
        void forget() override { value->reset(); }
        F function;
        std::shared_ptr<std::optional<R>> value;
        std::tuple<std::shared_ptr<std::optional<In>>...> args;
    };

    template <class T>
    static constexpr bool is_plain = std::is_trivially_copyable<T>::value && alignof(T) <= 16;

    /* Its values are bytes of the graph, which go from process to process. */
    template <class R, class F, class... In> struct shared_step : step {
        shared_step(F f, const task<R> &to) : function(std::move(f)), value(to.value_) {}
        void call(weft_task_call_t *call) override {
            call_with(call, std::index_sequence_for<In...>());
        }
        template <std::size_t... I>
        void call_with(weft_task_call_t *call, std::index_sequence<I...>) {
            if constexpr (std::is_void<std::invoke_result_t<F &, const In &...>>::value) {
                function(*static_cast<const In *>(call->inputs[I])...);
                new (call->result) R();
            } else {
                new (call->result) R(function(*static_cast<const In *>(call->inputs[I])...));
            }
        }
        void forget() override { value->reset(); }
        void collect(weft_graph_t *graph) override {
            const void *data = nullptr;
            std::size_t len = 0;
            if (weft_graph_result(graph, id, &data, &len) == WEFT_OK)
                value->emplace(*static_cast<const R *>(data));
        }
        F function;
        std::shared_ptr<std::optional<R>> value;
        weft_task_t id = WEFT_NO_TASK;
    };

    template <class F, class... In>
    auto add_task(weft_task_params_t params, F function, const task<In> &...inputs) {
        using returned = std::invoke_result_t<F &, const In &...>;
        using result = std::conditional_t<std::is_void<returned>::value, std::monostate,
                                          std::decay_t<returned>>;
        task<result> added;
        const weft_task_t ids[sizeof...(In) + 1] = {inputs.id_..., WEFT_NO_TASK};
        params.inputs = ids;
        params.n_inputs = sizeof...(In);
        if (view_.null()) {
            using made = local_step<result, F, In...>;
            add_step(params, std::make_unique<made>(std::move(function), added, inputs...),
                     added.id_);
        } else if constexpr (is_plain<result> && (is_plain<In> && ...)) {
            using made = shared_step<result, F, In...>;
            auto own = std::make_unique<made>(std::move(function), added);
            auto *named = own.get();
            params.result_size = sizeof(result);
            add_step(params, std::move(own), added.id_);
            named->id = added.id_;
        } else {
            throw error(WEFT_ERR_UNSUPPORTED, "weft::graph: an object does not go to others");
        }
        return added;
    }

    void add_step(weft_task_params_t &params, std::unique_ptr<step> added, weft_task_t &id) {
        added->owner = this;
        params.fn = run_step;
        params.arg = added.get();
        steps_.push_back(std::move(added)); /* it may throw, and then the graph has no task */
        const weft_status_t status = weft_graph_add(graph_, &params, &id);
        if (status < 0) steps_.pop_back();
        check(status);
    }

    static weft_status_t run_step(weft_task_call_t *call) {
        auto *own = static_cast<step *>(call->arg);
        try {
            own->call(call);
            return WEFT_OK;
        } catch (...) {
            if (!own->owner->thrown_.exchange(true))
                own->owner->exception_ = std::current_exception();
            return WEFT_ERR_REJECTED;
        }
    }

    runtime_view view_{nullptr}; /* null: the graph is of this process alone */
    weft_graph_t *graph_ = nullptr;
    std::vector<std::unique_ptr<step>> steps_;
    std::atomic<bool> runs_{false};
    std::atomic<bool> thrown_{false};
    std::exception_ptr exception_;
};

} // namespace weft

#endif
