/*
 * Task graphs for C++17, in one header: functions and lambdas as tasks, whose results are values of
 * this process. Errors are thrown as weft::error; an exception of a task is thrown by graph::run.
 * A graph over a team, and tasks that name a GPU or another place, are for weft/graph.h.
 */
#ifndef WEFT_GRAPH_HPP
#define WEFT_GRAPH_HPP

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
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
     * Throws std::bad_optional_access if it has none. */
    const R &get() const { return value_->value(); }
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
    /* UNSUPPORTED with params.team: an object does not go to another process. */
    explicit graph(const weft_graph_params_t &params = {}) {
        if (params.team)
            throw error(WEFT_ERR_UNSUPPORTED, "weft::graph: params.team: use weft_graph_create");
        check(weft_graph_create(&params, &graph_));
    }
    ~graph() { weft_graph_destroy(graph_); }
    graph(const graph &) = delete;
    graph &operator=(const graph &) = delete;

    /*
     * Adds function(const In &...), which is called with the results of `inputs` when they are
     * done, on any thread. It is called again in each run.
     */
    template <class F, class... In> auto add(F function, const task<In> &...inputs) {
        using returned = std::invoke_result_t<F &, const In &...>;
        using result = std::conditional_t<std::is_void<returned>::value, std::monostate,
                                          std::decay_t<returned>>;
        task<result> added;
        const weft_task_t ids[sizeof...(In) + 1] = {inputs.id_..., WEFT_NO_TASK};
        auto call = [function = std::move(function), value = added.value_.get(),
                     args = std::make_tuple(inputs.value_...)]() mutable {
            std::apply(
                [&](const auto &...arg) {
                    if constexpr (std::is_void<returned>::value) {
                        function(arg->value()...);
                        value->emplace();
                    } else {
                        value->emplace(function(arg->value()...));
                    }
                },
                args);
        };
        auto step = std::make_unique<step_of<decltype(call)>>(std::move(call), added.value_);
        step->owner = this;
        weft_task_params_t params = {};
        params.fn = run_step;
        params.arg = step.get();
        params.inputs = ids;
        params.n_inputs = sizeof...(In);
        check(weft_graph_add(graph_, &params, &added.id_));
        steps_.push_back(std::move(step));
        return added;
    }

    /* Runs all tasks, and takes part. Throws what the first task that failed has thrown. */
    void run() {
        exception_ = nullptr;
        thrown_ = false;
        weft_status_t status = weft_graph_run_wait(graph_);
        if (exception_) std::rethrow_exception(exception_);
        check(status);
    }

    /* For the other functions of weft/graph.h. */
    weft_graph_t *handle() const noexcept { return graph_; }

  private:
    struct step {
        virtual ~step() = default;
        virtual void call() = 0;
        graph *owner = nullptr;
    };
    template <class F> struct step_of : step {
        step_of(F function, std::shared_ptr<void> value)
            : function_(std::move(function)), value_(std::move(value)) {}
        void call() override { function_(); }
        F function_;
        std::shared_ptr<void> value_; /* as long as the graph */
    };

    static weft_status_t run_step(weft_task_call_t *call) {
        auto *own = static_cast<step *>(call->arg);
        try {
            own->call();
            return WEFT_OK;
        } catch (...) {
            if (!own->owner->thrown_.exchange(true))
                own->owner->exception_ = std::current_exception();
            return WEFT_ERR_REJECTED;
        }
    }

    weft_graph_t *graph_ = nullptr;
    std::vector<std::unique_ptr<step>> steps_;
    std::atomic<bool> thrown_{false};
    std::exception_ptr exception_;
};

} // namespace weft

#endif
