// The lines of a burn, in the words of wilicc/gpu-burn, which the parser `gpu-burn` of muster-node
// reads. Plain C++ without CUDA, so tests compile the file alone.
#pragma once

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

// A GPU at one moment of a burn.
struct Gpu {
    bool died = false;
    // Finished products of two matrices, and wrong values in the products.
    unsigned long long products = 0;
    unsigned long long errors = 0;
    double gflops = 0;
    // Degrees Celsius; negative where unknown.
    int degrees = -1;
};

// Joins a text of each GPU with dashes.
template <typename Text> std::string join(const std::vector<Gpu> &gpus, Text text) {
    std::string all;
    for (const Gpu &gpu : gpus) {
        if (!all.empty()) all += " - ";
        all += text(gpu);
    }
    return all;
}

inline std::string write_speed(const Gpu &gpu) {
    char text[64];
    if (gpu.died) return "-1 (0 Gflop/s)";
    std::snprintf(text, sizeof text, "%llu (%.0f Gflop/s)", gpu.products, gpu.gflops);
    return text;
}

// Readers take the number as a signed number of 32 bits.
inline std::string write_errors(const Gpu &gpu) {
    const unsigned long long most = INT_MAX;
    std::string text = std::to_string(std::min(gpu.errors, most));
    if (gpu.died) return text + "  (DIED!)";
    return gpu.errors == 0 ? text : text + "  (WARNING!)";
}

inline std::string write_degrees(const Gpu &gpu) {
    return gpu.died || gpu.degrees < 0 ? "--" : std::to_string(gpu.degrees) + " C";
}

// A line of progress, written over the line before. The errors are those since the start.
inline std::string write_progress(double percent, const std::vector<Gpu> &gpus) {
    char head[32];
    std::snprintf(head, sizeof head, "\r%.1f%%  proc'd: ", percent);
    return head + join(gpus, write_speed) + "   errors: " + join(gpus, write_errors) + "   temps: " + join(gpus, write_degrees) + " ";
}

// The list at the end: a GPU with an error, or without an end of its own, is faulty.
inline std::string write_verdicts(const std::vector<Gpu> &gpus) {
    std::string all = "\ndone\n\nTested " + std::to_string(gpus.size()) + " GPUs:\n";
    for (std::size_t at = 0; at < gpus.size(); ++at) {
        const bool faulty = gpus[at].died || gpus[at].errors > 0;
        all += "\tGPU " + std::to_string(at) + (faulty ? ": FAULTY\n" : ": OK\n");
    }
    return all;
}
