/* graph-words [FILE]: counts the words of a file, or of a built-in text, as a task graph: a task
 * for each part of the text, then pairs of counts are merged until one is left. Prints the most
 * frequent words; on a terminal, also how far it is. */
#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <weft/graph.hpp>

using counts = std::map<std::string, int>;

/* Throws, and the graph ends, if it is no text. */
static counts count(const std::string &text) {
    counts found;
    if (text.find('\0') != std::string::npos) throw std::runtime_error("this is no text");
    std::istringstream in(text);
    for (std::string word; in >> word;) found[word]++;
    return found;
}

static counts merge(const counts &a, const counts &b) {
    counts both = a;
    for (const auto &[word, n] : b) both[word] += n;
    return both;
}

/* Parts end between words. */
static std::vector<std::string> split(const std::string &text, size_t most) {
    std::vector<std::string> parts;
    for (size_t at = 0; at < text.size();) {
        size_t end = text.find_first_of(" \n\t", std::min(at + most, text.size()));
        if (end == std::string::npos) end = text.size();
        parts.push_back(text.substr(at, end - at));
        at = end;
    }
    return parts;
}

static std::string read(const char *path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

int main(int argc, char **argv) try {
    std::string text = "the warp is held and the weft is drawn through the warp";
    if (argc > 1) text = read(argv[1]);

    weft_graph_params_t params = {};
    params.progress_bar = WEFT_BAR_ON_TERMINAL;
    weft::graph graph(params);
    std::vector<weft::task<counts>> level;
    for (const std::string &part : split(text, argc > 1 ? 65536 : 8))
        level.push_back(graph.add([part] { return count(part); }));
    while (level.size() > 1) {
        std::vector<weft::task<counts>> merged;
        for (size_t i = 0; i + 1 < level.size(); i += 2)
            merged.push_back(graph.add(merge, level[i], level[i + 1]));
        if (level.size() % 2) merged.push_back(level.back());
        level = merged;
    }
    if (level.empty()) return 0;
    graph.run();

    std::vector<std::pair<std::string, int>> most(level[0].get().begin(), level[0].get().end());
    std::stable_sort(most.begin(), most.end(),
                     [](const auto &a, const auto &b) { return a.second > b.second; });
    if (most.size() > 3) most.resize(3);
    for (const auto &[word, n] : most) std::cout << n << " " << word << "\n";
} catch (const std::exception &error) {
    std::cerr << "graph-words: " << error.what() << "\n";
    return 1;
}
