/*
 * The runtime view for C++17, in one header: values, containers and functions in place of handles,
 * lengths and callbacks. Everything blocks, as the _wait functions of weft/view.h do. Errors are
 * thrown as weft::error.
 *
 * An object of any type is sent that weft::serializer knows: trivially copyable types with a
 * default constructor, std::string, vectors of such (not of bool), and types for which a program
 * specializes it.
 */
#ifndef WEFT_VIEW_HPP
#define WEFT_VIEW_HPP

#if __cplusplus < 201703L
#error "weft/view.hpp needs C++17"
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
#include <weft/logger.h>
#include <weft/view_operations.h>

namespace weft {

/* What a call of the library returned, with its cause as text. */
class error : public std::runtime_error {
  public:
    error(weft_status_t status, const std::string &what)
        : std::runtime_error(what), status_(status) {}
    weft_status_t status() const noexcept { return status_; }

  private:
    weft_status_t status_;
};

inline void check(weft_status_t status) {
    char text[512];
    if (status >= 0) return;
    weft_status_describe(status, text, sizeof text);
    throw error(status, text);
}

/* ---- objects as bytes ---- */

/* `pack` appends the bytes of an object; `unpack` makes the object of all of `bytes`, or throws. */
template <class T, class = void> struct serializer {
    static_assert(std::is_trivially_copyable<T>::value,
                  "specialize weft::serializer for this type");
    static void pack(const T &object, std::string &bytes) {
        bytes.append(reinterpret_cast<const char *>(&object), sizeof object);
    }
    static T unpack(const char *bytes, std::size_t len) {
        T object;
        if (len != sizeof object) throw error(WEFT_ERR_PROTOCOL, "an object has another size");
        std::memcpy(&object, bytes, len);
        return object;
    }
};

template <> struct serializer<std::string> {
    static void pack(const std::string &object, std::string &bytes) { bytes += object; }
    static std::string unpack(const char *bytes, std::size_t len) {
        return std::string(bytes, len);
    }
};

/* Elements in a row. */
template <class T>
struct serializer<std::vector<T>, std::enable_if_t<std::is_trivially_copyable<T>::value>> {
    static void pack(const std::vector<T> &object, std::string &bytes) {
        if (!object.empty())
            bytes.append(reinterpret_cast<const char *>(object.data()), object.size() * sizeof(T));
    }
    static std::vector<T> unpack(const char *bytes, std::size_t len) {
        if (len % sizeof(T)) throw error(WEFT_ERR_PROTOCOL, "a vector has half an element");
        std::vector<T> object(len / sizeof(T));
        if (len) std::memcpy(object.data(), bytes, len);
        return object;
    }
};

/* Other elements: the length of each, then its bytes. */
template <class T>
struct serializer<std::vector<T>, std::enable_if_t<!std::is_trivially_copyable<T>::value>> {
    static void pack(const std::vector<T> &object, std::string &bytes) {
        for (const T &element : object) {
            std::string part;
            serializer<T>::pack(element, part);
            serializer<std::uint64_t>::pack(part.size(), bytes);
            bytes += part;
        }
    }
    static std::vector<T> unpack(const char *bytes, std::size_t len) {
        std::vector<T> object;
        for (std::size_t at = 0; at < len;) {
            if (len - at < 8) throw error(WEFT_ERR_PROTOCOL, "a vector is cut off");
            std::uint64_t part = serializer<std::uint64_t>::unpack(bytes + at, 8);
            at += 8;
            if (part > len - at) throw error(WEFT_ERR_PROTOCOL, "a vector is cut off");
            object.push_back(serializer<T>::unpack(bytes + at, part));
            at += part;
        }
        return object;
    }
};

/* ---- reductions ---- */

namespace detail {

/* Whether a team has these numbers, and makes of two of them what C++ makes. Not bool, whose sum
 * is true, and not the numbers of 128 bits that gcc counts as arithmetic. */
template <class T>
constexpr bool is_number = std::is_same<T, float>::value || std::is_same<T, double>::value ||
                           std::is_same<T, long double>::value ||
                           (std::is_integral<T>::value && !std::is_same<T, bool>::value &&
                            sizeof(T) <= 8);

template <class T> constexpr weft_datatype_t datatype_of() {
    static_assert(is_number<T>, "a team has no type of these numbers");
    if constexpr (std::is_same<T, float>::value)
        return WEFT_FLOAT32;
    else if constexpr (std::is_same<T, double>::value)
        return WEFT_FLOAT64;
    else if constexpr (std::is_same<T, long double>::value)
        return WEFT_LONG_DOUBLE;
    else if constexpr (std::is_signed<T>::value)
        return sizeof(T) == 1   ? WEFT_INT8
               : sizeof(T) == 2 ? WEFT_INT16
               : sizeof(T) == 4 ? WEFT_INT32
                                : WEFT_INT64;
    else
        return sizeof(T) == 1   ? WEFT_UINT8
               : sizeof(T) == 2 ? WEFT_UINT16
               : sizeof(T) == 4 ? WEFT_UINT32
                                : WEFT_UINT64;
}

/* The operation of std:: that a reduction stands for. Others are the program's own. */
template <class Op> struct reduction;
template <class T> struct reduction<std::plus<T>> {
    static constexpr weft_reduction_t value = WEFT_SUM;
};
template <class T> struct reduction<std::multiplies<T>> {
    static constexpr weft_reduction_t value = WEFT_PROD;
};
template <class T> struct reduction<std::bit_and<T>> {
    static constexpr weft_reduction_t value = WEFT_BAND;
};
template <class T> struct reduction<std::bit_or<T>> {
    static constexpr weft_reduction_t value = WEFT_BOR;
};
template <class T> struct reduction<std::bit_xor<T>> {
    static constexpr weft_reduction_t value = WEFT_BXOR;
};
template <class T> struct reduction<std::logical_and<T>> {
    static constexpr weft_reduction_t value = WEFT_LAND;
};
template <class T> struct reduction<std::logical_or<T>> {
    static constexpr weft_reduction_t value = WEFT_LOR;
};

template <class T>
constexpr bool is_communicator = std::is_same<T, int>::value || std::is_pointer<T>::value;

template <class T, class Op, class = void> constexpr bool is_known = false;
template <class T, class Op>
constexpr bool is_known<T, Op, std::void_t<decltype(reduction<Op>::value)>> = is_number<T>;

/* The type and the reduction that a team has for one kind of element and function. */
struct own_reduction {
    weft_datatype_t type{};
    weft_reduction_t number{};
    const void *op = nullptr; /* the function of the reduction that is under way */
    std::exception_ptr thrown;
};

/* Ends a view's reference. It also keeps the reductions that the view's team has been given. */
struct view_end {
    std::map<weft_reduce_fn, std::shared_ptr<own_reduction>, std::less<weft_reduce_fn>> own;
    void operator()(weft_view_t *view) const { weft_view_release_wait(view); }
};

/* Two ids of devices or memory: an unknown one, 0, is that of none but itself. */
inline bool is_same(std::uint64_t a, std::uint64_t b, bool itself) {
    return a == b && (a != 0 || itself);
}

/* A view and its reference. */
inline std::shared_ptr<weft_view_t> own(weft_view_t *view) {
    return std::shared_ptr<weft_view_t>(view, view_end());
}

template <class T>
std::vector<T> gather_at(weft_view_t *view, const weft_resource_set_t *at, const T &object) {
    std::string bytes;
    weft_blocks_t *blocks = nullptr;
    serializer<T>::pack(object, bytes);
    check(weft_view_gatherv_wait(view, at, bytes.data(), bytes.size(), &blocks));
    std::unique_ptr<weft_blocks_t, void (*)(weft_blocks_t *)> owner(blocks, weft_blocks_free);
    std::vector<T> all;
    for (std::uint32_t r = 0; blocks && r < blocks->n; r++)
        all.push_back(
            serializer<T>::unpack(static_cast<const char *>(blocks->data[r]), blocks->len[r]));
    return all;
}

/* A weft_reduce_fn. Elements may have any alignment, and `to` may be `left` or `right`. */
template <class T, class Op>
void fold(void *to, const void *left, const void *right, std::size_t n, void *arg) {
    auto *own = static_cast<own_reduction *>(arg);
    if (own->thrown) return;
    try {
        for (std::size_t i = 0; i < n * sizeof(T); i += sizeof(T)) {
            T a, b;
            std::memcpy(&a, static_cast<const char *>(left) + i, sizeof a);
            std::memcpy(&b, static_cast<const char *>(right) + i, sizeof b);
            const T made = (*static_cast<const Op *>(own->op))(a, b);
            std::memcpy(static_cast<char *>(to) + i, &made, sizeof made);
        }
    } catch (...) {
        own->thrown = std::current_exception();
    }
}

/* The reduction of this function's kind, which the view's team is given by its first use. */
template <class T, class Op> own_reduction &own_of(const std::shared_ptr<weft_view_t> &view) {
    static_assert(std::is_trivially_copyable<T>::value && std::is_default_constructible<T>::value,
                  "reductions are on plain objects");
    static_assert(std::is_invocable_r<T, const Op &, const T &, const T &>::value,
                  "a reduction makes an object of two");
    auto *end = std::get_deleter<view_end>(view);
    if (!end) throw error(WEFT_ERR_INVALID_PARAM, "the null view has no processes");
    auto &own = end->own[fold<T, Op>];
    if (!own) {
        auto made = std::make_shared<own_reduction>();
        weft_datatype_params_t params = weft_datatype_params_t();
        params.size = sizeof(T);
        weft_team_t *team = weft_view_team(view.get());
        check(weft_datatype_create(team, &params, &made->type));
        check(weft_reduction_create(team, fold<T, Op>, made.get(), 0, &made->number));
        own = std::move(made);
    }
    return *own;
}

template <class T, class Op>
void reduce_at(const std::shared_ptr<weft_view_t> &view, const weft_resource_set_t *at,
               const T *from, T *to, std::size_t n, const Op &op) {
    if constexpr (is_known<T, Op>) {
        check(weft_view_reduce_wait(view.get(), at, from, to, n, datatype_of<T>(),
                                    reduction<Op>::value));
    } else {
        auto &own = own_of<T, Op>(view);
        own.op = &op;
        weft_status_t status =
            weft_view_reduce_wait(view.get(), at, from, to, n, own.type, own.number);
        if (own.thrown) {
            weft_team_revoke(weft_view_team(view.get())); /* what the others have is not valid */
            std::rethrow_exception(std::exchange(own.thrown, nullptr));
        }
        check(status);
    }
}

} // namespace detail

/* MIN and MAX have no function of the standard library. */
template <class T> struct minimum {
    T operator()(const T &a, const T &b) const { return b < a ? b : a; }
};
template <class T> struct maximum {
    T operator()(const T &a, const T &b) const { return a < b ? b : a; }
};
namespace detail {
template <class T> struct reduction<minimum<T>> {
    static constexpr weft_reduction_t value = WEFT_MIN;
};
template <class T> struct reduction<maximum<T>> {
    static constexpr weft_reduction_t value = WEFT_MAX;
};
} // namespace detail

/* ---- the memory of a process, where results go and come from ---- */

/* Results are empty at every process but the owner of the memory. */
class ram {
  public:
    ram(std::shared_ptr<weft_view_t> view, const weft_resource_set_t *set)
        : view_(std::move(view)), set_(set) {}
    std::uint64_t total_space() const { return set_->ram_total; }
    std::uint64_t free_space() const { return set_->ram_free; }
    std::uint64_t used_space() const { return set_->ram_used; }
    /* The same memory, and not only as much. */
    friend bool operator==(const ram &a, const ram &b) {
        return detail::is_same(a.set_->ram_id, b.set_->ram_id,
                               a.set_->process_id == b.set_->process_id);
    }
    friend bool operator!=(const ram &a, const ram &b) { return !(a == b); }

    template <class T> std::optional<std::vector<T>> gather(const T &object) const {
        std::vector<T> all = detail::gather_at(view_.get(), set_, object);
        if (!is_here()) return std::nullopt;
        return all;
    }
    /* `op`: as of runtime_view::reduce. */
    template <class T, class Op>
    std::optional<std::vector<T>> reduce(const std::vector<T> &from, Op op) const {
        std::vector<T> to(from.size());
        detail::reduce_at(view_, set_, from.data(), to.data(), from.size(), op);
        if (!is_here()) return std::nullopt;
        return to;
    }
    template <class T, class Op> std::optional<T> reduce(const T &from, Op op) const {
        T to{};
        detail::reduce_at(view_, set_, &from, &to, 1, op);
        return is_here() ? std::optional<T>(to) : std::nullopt;
    }
    /* `parts` is the owner's: an object for each rank, of one trivially copyable type. */
    template <class T> T scatter(const std::vector<T> &parts) const {
        static_assert(std::is_trivially_copyable<T>::value, "scatter takes plain objects");
        T part;
        if (is_here() && parts.size() != weft_view_size(view_.get()))
            throw error(WEFT_ERR_INVALID_PARAM, "scatter needs an object for each process");
        check(weft_view_scatter_wait(view_.get(), set_, parts.data(), sizeof part, &part));
        return part;
    }
    /* Returns the owner's object. */
    template <class T> T bcast(const T &object) const {
        std::string bytes;
        if (is_here()) serializer<T>::pack(object, bytes);
        std::uint64_t len = bytes.size();
        check(weft_view_bcast_wait(view_.get(), set_, &len, sizeof len));
        bytes.resize(len);
        check(weft_view_bcast_wait(view_.get(), set_, &bytes[0], len));
        return serializer<T>::unpack(bytes.data(), len);
    }
    /* To the owner, which calls receive<T>() on the memory of the sender. Not to oneself. Objects
     * of one pair and one tag arrive in order. */
    template <class T> void send(const T &object, std::uint32_t tag = 0) const {
        std::string bytes;
        serializer<T>::pack(object, bytes);
        std::uint64_t len = bytes.size();
        check(weft_view_send_wait(view_.get(), set_, &len, sizeof len, tag));
        if (len) check(weft_view_send_wait(view_.get(), set_, bytes.data(), len, tag));
    }
    /* Returns what the owner sends, of any length. */
    template <class T> T receive(std::uint32_t tag = 0) const {
        std::uint64_t len = 0;
        check(weft_view_receive_wait(view_.get(), set_, &len, sizeof len, tag));
        std::string bytes(len, 0);
        if (len) check(weft_view_receive_wait(view_.get(), set_, &bytes[0], len, tag));
        return serializer<T>::unpack(bytes.data(), len);
    }

    const weft_resource_set_t &c_set() const { return *set_; }

  private:
    bool is_here() const { return set_->rank == weft_view_rank(view_.get()); }
    std::shared_ptr<weft_view_t> view_;
    const weft_resource_set_t *set_;
};

/* ---- a GPU of a process ---- */

/* Operations whose memory lies on a GPU: device addresses of the program's, as from cuMemAlloc or
 * cudaMalloc, of trivially copyable elements. Lengths are in elements. */
class gpu {
  public:
    gpu(std::shared_ptr<weft_view_t> view, const weft_resource_set_t *set, std::uint32_t index)
        : view_(std::move(view)), set_(set), index_(index) {}
    std::string name() const { return info().name; }
    std::uint64_t total_space() const { return info().memory; }
    std::uint32_t index() const { return index_; }
    /* The same GPU, and not only one of the same kind. */
    friend bool operator==(const gpu &a, const gpu &b) {
        return detail::is_same(a.info().id, b.info().id,
                               a.set_->process_id == b.set_->process_id && a.index_ == b.index_);
    }
    friend bool operator!=(const gpu &a, const gpu &b) { return !(a == b); }

    /* `to` is used at the owner alone, and has room for `n` elements of each process. */
    template <class T> void gather(const T *from, std::size_t n, T *to) const {
        check(weft_view_gather_wait(view_.get(), set_, from, n * sizeof(T), to));
    }
    template <class T, class Op> void reduce(const T *from, T *to, std::size_t n, Op op) const {
        detail::reduce_at(view_, set_, from, to, n, op);
    }
    template <class T> void scatter(const T *from, std::size_t n, T *to) const {
        check(weft_view_scatter_wait(view_.get(), set_, from, n * sizeof(T), to));
    }
    template <class T> void bcast(T *at, std::size_t n) const {
        check(weft_view_bcast_wait(view_.get(), set_, at, n * sizeof(T)));
    }
    /* To the owner, which calls receive() on a GPU of the sender. */
    template <class T> void send(const T *from, std::size_t n, std::uint32_t tag = 0) const {
        check(weft_view_send_wait(view_.get(), set_, from, n * sizeof(T), tag));
    }
    template <class T> void receive(T *to, std::size_t n, std::uint32_t tag = 0) const {
        check(weft_view_receive_wait(view_.get(), set_, to, n * sizeof(T), tag));
    }

    const weft_resource_set_t &c_set() const { return *set_; }

  private:
    const weft_device_info_t &info() const { return set_->gpu[index_]; }
    std::shared_ptr<weft_view_t> view_;
    const weft_resource_set_t *set_;
    std::uint32_t index_;
};

/* What one process has. It keeps its view alive. */
class resource_set {
  public:
    resource_set(std::shared_ptr<weft_view_t> view, const weft_resource_set_t *set)
        : view_(std::move(view)), set_(set) {}
    std::uint32_t rank() const { return set_->rank; }
    std::string host() const { return set_->host; }
    bool is_mine() const { return set_->process_id == weft_view_mine(view_.get())->process_id; }
    /* Operations on the memory of my_resource_set() are refused: every process has another. */
    weft::ram ram() const { return weft::ram(view_, set_); }
    std::uint32_t n_gpus() const { return set_->n_gpus; }
    /* Throws std::out_of_range. */
    weft::gpu gpu(std::uint32_t index) const {
        if (index >= set_->n_gpus) throw std::out_of_range("GPU " + std::to_string(index));
        return weft::gpu(view_, set_, index);
    }
    const weft_resource_set_t &c_set() const { return *set_; }
    friend bool operator==(const resource_set &a, const resource_set &b) {
        return a.set_->process_id == b.set_->process_id;
    }
    friend bool operator!=(const resource_set &a, const resource_set &b) { return !(a == b); }

  private:
    std::shared_ptr<weft_view_t> view_;
    const weft_resource_set_t *set_;
};

/* ---- the view ---- */

class logger;
class runtime_view;
runtime_view get_runtime();

/*
 * Copies share one view. The last one runs the callbacks, and ends what the view started. A
 * callback that holds a copy of its own view would keep it for ever.
 */
class runtime_view {
  public:
    /* The view of this program's processes, whatever launched them. */
    runtime_view() : runtime_view(weft_view_params_t()) {}
    runtime_view(int &argc, char **&argv) : runtime_view(with_arguments(argc, argv)) {}
    /* The view of an MPI communicator, which is duplicated. An MPI_Comm is a pointer or an int. */
    template <class Comm, std::enable_if_t<detail::is_communicator<Comm>, int> = 0>
    explicit runtime_view(Comm comm) : runtime_view(with_communicator(&comm)) {}
    template <class Comm, std::enable_if_t<detail::is_communicator<Comm>, int> = 0>
    runtime_view(int &argc, char **&argv, Comm comm)
        : runtime_view(with_communicator(&comm, &argc, &argv)) {}
    explicit runtime_view(const weft_view_params_t &params) {
        weft_view_t *view = nullptr;
        check(weft_view_create_wait(&params, &view));
        view_ = detail::own(view);
    }
    /* The null view, of no process. */
    explicit runtime_view(std::nullptr_t) {}

    std::uint32_t size() const { return weft_view_size(view_.get()); }
    std::uint32_t rank() const { return weft_view_rank(view_.get()); }
    bool null() const { return !view_; }
    bool did_i_start() const { return weft_view_did_start(view_.get()); }
    std::string engine() const { return weft_view_engine(view_.get()); }
    /* The communicator of a view by MPI, as view.mpi_comm<MPI_Comm>(). The view frees it. */
    template <class Comm> Comm mpi_comm() const {
        static_assert(detail::is_communicator<Comm>, "an MPI_Comm is a pointer or an int");
        Comm comm{};
        check(weft_view_mpi_comm(view_.get(), &comm, sizeof comm));
        return comm;
    }
    /* Throws std::out_of_range. It is read from its owner by the first call, so the owner must not
     * have ended its view: call barrier() before the end. */
    resource_set at(std::uint32_t rank) const {
        const weft_resource_set_t *set = nullptr;
        if (rank >= size()) throw std::out_of_range("rank " + std::to_string(rank));
        check(weft_view_at_wait(view_.get(), rank, false, &set));
        return resource_set(view_, set);
    }
    bool has_me() const { return !null(); }
    resource_set my_resource_set() const {
        if (null()) throw std::out_of_range("the null view has no processes");
        return resource_set(view_, weft_view_mine(view_.get()));
    }
    /* The number of processes that share the memory of this set. */
    std::uint32_t count(const resource_set &set) const { return count(set.ram()); }
    /* The number of processes that share this memory, or this GPU. */
    std::uint32_t count(const ram &memory) const {
        std::uint32_t n = 0;
        check(weft_view_count_ram_wait(view_.get(), &memory.c_set(), &n));
        return n;
    }
    std::uint32_t count(const gpu &device) const {
        std::uint32_t n = 0;
        check(weft_view_count_gpu_wait(view_.get(), &device.c_set(), device.index(), &n));
        return n;
    }

    /* ---- all to all ---- */

    void barrier() const { check(weft_view_barrier_wait(view_.get())); }
    template <class T> std::vector<T> gather(const T &object) const {
        return detail::gather_at(view_.get(), nullptr, object);
    }
    /*
     * `op` is one of std::plus, std::multiplies, bitwise and logical and or xor, weft::minimum and
     * weft::maximum, on numbers. Or it is any associative function T(const T &, const T &) on plain
     * objects, which gets its operands in the order of ranks and must not call the library. What
     * it throws is thrown here, and the team is revoked. So the other processes get an error here,
     * or what they have is not valid and they get it by their next operation.
     */
    template <class T, class Op> std::vector<T> reduce(const std::vector<T> &from, Op op) const {
        std::vector<T> to(from.size());
        detail::reduce_at(view_, nullptr, from.data(), to.data(), from.size(), op);
        return to;
    }
    template <class T, class Op> T reduce(const T &from, Op op) const {
        T to{};
        detail::reduce_at(view_, nullptr, &from, &to, 1, op);
        return to;
    }
    /* An object for each process; returns one of each. */
    template <class T> std::vector<T> alltoall(const std::vector<T> &parts) const {
        static_assert(std::is_trivially_copyable<T>::value, "alltoall takes plain objects");
        if (parts.size() != size())
            throw error(WEFT_ERR_INVALID_PARAM, "alltoall needs an object for each process");
        std::vector<T> got(parts.size());
        check(weft_view_alltoall_wait(view_.get(), parts.data(), sizeof(T), got.data()));
        return got;
    }

    /* The same on memory that the program has, of a GPU or of the host, of trivially copyable
     * elements. `to` has room for `n` elements of each process (reduce: for `n`). */
    template <class T> void gather(const T *from, std::size_t n, T *to) const {
        static_assert(std::is_trivially_copyable<T>::value, "gather takes plain objects here");
        check(weft_view_gather_wait(view_.get(), nullptr, from, n * sizeof(T), to));
    }
    template <class T, class Op> void reduce(const T *from, T *to, std::size_t n, Op op) const {
        detail::reduce_at(view_, nullptr, from, to, n, op);
    }
    /* `from` has `n` elements for each process, too. */
    template <class T> void alltoall(const T *from, std::size_t n, T *to) const {
        static_assert(std::is_trivially_copyable<T>::value, "alltoall takes plain objects");
        check(weft_view_alltoall_wait(view_.get(), from, n * sizeof(T), to));
    }

    /* ---- parts ---- */

    /* Returns the view of the processes that give the same colour, in the order of (key, rank). A
     * process that gives WEFT_NO_COLOUR gets the null view. Each process calls it. */
    runtime_view split(std::uint32_t colour, std::uint32_t key = 0) const {
        weft_view_t *part = nullptr;
        check(weft_view_split_wait(view_.get(), colour, key, &part));
        return part ? runtime_view(detail::own(part)) : runtime_view(nullptr);
    }
    /* Returns the view of the processes that share a host, a NUMA node or a GPU with this one. */
    runtime_view partition(weft_partition_t by) const {
        weft_view_t *part = nullptr;
        check(weft_view_partition_wait(view_.get(), by, &part));
        return part ? runtime_view(detail::own(part)) : runtime_view(nullptr);
    }

    /* ---- printing ---- */

    /* A logger of the program: rank 0 writes to standard output, unless `params` say otherwise. */
    weft::logger logger(const weft_logger_params_t &params = {}) const;

    /* ---- the end ---- */

    /* Called before the view's engine ends, the last one first. What it throws is reported as
     * WEFT_ERR_INTERNAL, and the next one is called all the same. */
    void stack_callback(std::function<void()> callback) const {
        auto kept = std::make_unique<std::function<void()>>(std::move(callback));
        check(weft_view_push_finalizer(view_.get(), call, kept.get(), nullptr, nullptr));
        kept.release();
    }
    /* Ends this reference. Throws the first error of a callback, if it was the last. */
    void reset() {
        weft_view_t *view = view_.get();
        if (!view) return;
        weft_view_retain(view);
        view_.reset();
        check(weft_view_release_wait(view));
    }

    weft_view_t *c_view() const { return view_.get(); }
    void swap(runtime_view &other) noexcept { view_.swap(other.view_); }
    friend bool operator==(const runtime_view &a, const runtime_view &b) {
        return weft_view_equal(a.view_.get(), b.view_.get());
    }
    friend bool operator!=(const runtime_view &a, const runtime_view &b) { return !(a == b); }

  private:
    static weft_view_params_t with_arguments(int &argc, char **&argv) {
        weft_view_params_t params = weft_view_params_t();
        params.argc = &argc;
        params.argv = &argv;
        return params;
    }
    static weft_view_params_t with_communicator(const void *comm, int *argc = nullptr,
                                                char ***argv = nullptr) {
        weft_view_params_t params = weft_view_params_t();
        params.mpi_comm = comm;
        params.argc = argc;
        params.argv = argv;
        return params;
    }
    static weft_status_t call(weft_finalizer_t *, void *arg) {
        std::unique_ptr<std::function<void()>> callback(static_cast<std::function<void()> *>(arg));
        try {
            (*callback)();
        } catch (...) {
            return WEFT_ERR_INTERNAL;
        }
        return WEFT_OK;
    }
    explicit runtime_view(std::shared_ptr<weft_view_t> view) : view_(std::move(view)) {}
    friend runtime_view get_runtime();
    std::shared_ptr<weft_view_t> view_;
};

/*
 * The view of the program. The first call makes it, and later calls return the same one. It ends
 * with its last copy. For one thread.
 */
inline runtime_view get_runtime() {
    static std::weak_ptr<weft_view_t> shared;
    if (auto view = shared.lock()) return runtime_view(std::move(view));
    runtime_view made;
    shared = made.view_;
    return made;
}

/*
 * A logger (weft/logger.h): the program's, in which rank 0 speaks, unless `params` say otherwise.
 * Copies share it. It may outlive the view.
 */
class logger {
  public:
    explicit logger(const runtime_view &view, const weft_logger_params_t &params = {}) {
        weft_logger_t *made = nullptr;
        check(weft_logger_create(view.c_view(), &params, &made));
        logger_ = std::shared_ptr<weft_logger_t>(made, weft_logger_destroy);
    }
    /* Writes nothing. */
    explicit logger(std::nullptr_t) {}
    void log(weft_log_level_t level, const std::string &text) const {
        weft_logger_write(logger_.get(), level, "%s", text.c_str());
    }
    void error(const std::string &text) const { log(WEFT_LOG_ERROR, text); }
    void warn(const std::string &text) const { log(WEFT_LOG_WARN, text); }
    void info(const std::string &text) const { log(WEFT_LOG_INFO, text); }
    void debug(const std::string &text) const { log(WEFT_LOG_DEBUG, text); }

  private:
    std::shared_ptr<weft_logger_t> logger_;
};

inline logger runtime_view::logger(const weft_logger_params_t &params) const {
    return weft::logger(*this, params);
}

} // namespace weft
#endif
