/*
 * Another library ends before the runtime view ends what it started (MPI, if no library had), in
 * C++.
 */
#include <iostream>
#include <weft/view.hpp>

static bool is_initialized;

static void other_library_initialize() {
    is_initialized = true;
}
static void other_library_finalize() {
    std::cout << "the other library ends\n";
    is_initialized = false;
}

int main() try {
    {
        // Create a runtime_view object
        weft::runtime_view rt;
        // Initialize the other library
        other_library_initialize();
        // Register the corresponding finalization routine with the runtime_view
        rt.stack_callback(other_library_finalize);
        rt.stack_callback([] { std::cout << "the last one is called first\n"; });
        std::cout << "the view is in use\n";
    }
    return is_initialized ? 1 : 0;
} catch (const weft::error &e) {
    std::cerr << e.what() << '\n';
    return 1;
}
