/*
 * All-to-all communication by the runtime view, in C++: alone, under weft-run -n 4, or under
 * mpirun -n 4.
 */
#include <functional>
#include <iostream>
#include <string>
#include <weft/view.hpp>

static std::string generate_data(const weft::runtime_view &rt) {
    return std::string(rt.rank() + 1, static_cast<char>('a' + rt.rank() % 26));
}

int main() try {
    auto rt = weft::get_runtime();
    auto data = generate_data(rt);
    // This is an all gather, of texts of unequal lengths
    auto output = rt.gather(data);
    // This is an all reduce
    auto output2 = rt.reduce(data.size(), std::plus<std::size_t>());
    // These have a result at rank 0 only
    auto ram = rt.at(0).ram();
    auto at_0 = ram.gather(data);
    auto longest = ram.reduce(data.size(), weft::maximum<std::size_t>());
    if (rt.rank() == 0) {
        for (const auto &text : output) std::cout << text << ' ';
        std::cout << output2 << ", the longest " << *longest << '\n';
    }
    return (at_0.has_value() == (rt.rank() == 0) && output.size() == rt.size()) ? 0 : 1;
} catch (const weft::error &e) {
    std::cerr << e.what() << '\n';
    return 1;
}
