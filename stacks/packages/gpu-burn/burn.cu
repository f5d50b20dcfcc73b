// gpu_burn: loads every NVIDIA GPU for a while, and compares the results. Called and read like
// wilicc/gpu-burn, but written anew: one process with a thread for each GPU, and no start without a
// GPU.
//
// Exit status 0: the run ended, and the list at its end judges each GPU. Exit status 1: there is no
// GPU, a GPU cannot be prepared, or every GPU stopped. Exit status 2: wrong arguments.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "matrices.h"
#include "report.h"
#include "thermometer.h"

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// The longest time until the GPUs are listed and prepared, and the longest wait for their last
// products. The gates allow at least 120 s beside the burn.
constexpr seconds PREPARATION{80};
constexpr seconds LAST_PRODUCTS{30};
constexpr long LONGEST_RUN_S = 86'400;
// Products between two looks at the clock: as many as take a fifth of a second, within this bound.
constexpr std::size_t MOST_PRODUCTS = 64;

enum class State { preparing, ready, ended, stopped };

struct Options {
    bool lists = false;
    bool doubles = false;
    bool tensor_cores = false;
    long seconds = 0;
};

// The thread of a GPU, as the main thread sees it.
struct Work {
    std::atomic<State> state{State::preparing};
    std::atomic<unsigned long long> products{0};
    std::atomic<unsigned long long> errors{0};
    // Written before the state `stopped`, and never again.
    std::string reason;
};

struct Signals {
    std::atomic<bool> listed{false};
    std::atomic<bool> start{false};
    std::atomic<bool> stop{false};
};

// Ends the process at once: a thread may hang in the driver.
[[noreturn]] static void leave(int status) {
    std::fflush(nullptr);
    _exit(status);
}

[[noreturn]] static void refuse(const char *word) {
    std::fprintf(stderr,
                 "gpu_burn: %s is no argument\n"
                 "usage: gpu_burn [-d | -tc] [-c FILE] SECONDS\n"
                 "       gpu_burn -l\n"
                 "  -l       lists the GPUs\n"
                 "  -d       double precision\n"
                 "  -tc      tensor cores with TF32, where the GPU has them\n"
                 "  -c FILE  read by other versions of gpu_burn, and ignored\n"
                 "  SECONDS  1 to %ld\n",
                 word, LONGEST_RUN_S);
    leave(2);
}

static Options read_options(int count, char **words) {
    Options options;
    for (int at = 1; at < count; ++at) {
        char *end = nullptr;
        if (std::strcmp(words[at], "-l") == 0) {
            options.lists = true;
        } else if (std::strcmp(words[at], "-d") == 0) {
            options.doubles = true;
        } else if (std::strcmp(words[at], "-tc") == 0) {
            options.tensor_cores = true;
        } else if (std::strcmp(words[at], "-c") == 0 && at + 1 < count) {
            ++at;
        } else {
            const long value = std::strtol(words[at], &end, 10);
            if (end == words[at] || *end != '\0' || value < 1 || value > LONGEST_RUN_S || options.seconds != 0) refuse(words[at]);
            options.seconds = value;
        }
    }
    if (options.doubles && options.tensor_cores) refuse("-d with -tc");
    if (!options.lists && options.seconds == 0) refuse("a call without SECONDS");
    return options;
}

// Ends the process where the driver does not answer in time.
static void limit_list(const Signals &signals, Clock::time_point last) {
    std::this_thread::sleep_until(last);
    if (signals.listed) return;
    std::fprintf(stderr, "the GPUs were not listed within %lld s\n", static_cast<long long>(PREPARATION.count()));
    leave(1);
}

static int count_gpus() {
    int count = 0;
    const cudaError_t code = cudaGetDeviceCount(&count);
    if (code == cudaSuccess && count > 0) return count;
    std::fprintf(stderr, "No GPU was found: %s\n", code == cudaSuccess ? "CUDA lists none" : cudaGetErrorString(code));
    leave(1);
}

// Prints the GPUs, and returns their PCI addresses.
static std::vector<std::string> list_gpus(int count) {
    std::vector<std::string> addresses;
    for (int gpu = 0; gpu < count; ++gpu) {
        cudaDeviceProp properties{};
        char address[32] = "";
        cudaError_t code = cudaGetDeviceProperties(&properties, gpu);
        if (code == cudaSuccess) code = cudaDeviceGetPCIBusId(address, sizeof address, gpu);
        if (code != cudaSuccess) {
            std::fprintf(stderr, "GPU %d cannot be read: %s\n", gpu, cudaGetErrorString(code));
            leave(1);
        }
        std::printf("GPU %d: %s (%s, %zu MiB)\n", gpu, properties.name, address, properties.totalGlobalMem >> 20);
        addresses.emplace_back(address);
    }
    std::fflush(stdout);
    return addresses;
}

template <typename Real> static void burn(bool tensor_cores, const Signals &signals, Work &work) {
    Matrices<Real> matrices(tensor_cores);
    work.errors = matrices.errors();
    work.state = State::ready;
    while (!signals.start) std::this_thread::sleep_for(milliseconds(10));
    std::size_t most = 1;
    while (!signals.stop) {
        const auto began = Clock::now();
        const std::size_t done = matrices.run(most);
        work.errors = matrices.errors();
        work.products += done;
        if (Clock::now() - began < milliseconds(200)) most = std::min(2 * most, MOST_PRODUCTS);
    }
    work.state = State::ended;
}

static void work_on(int gpu, const Options &options, const Signals &signals, Work &work) {
    try {
        check(cudaSetDevice(gpu), "cudaSetDevice");
        if (options.doubles) {
            burn<double>(false, signals, work);
        } else {
            burn<float>(options.tensor_cores, signals, work);
        }
    } catch (const std::exception &failure) {
        work.reason = failure.what();
        work.state = State::stopped;
    }
}

static bool all_are(const std::vector<std::unique_ptr<Work>> &works, State state) {
    return std::all_of(works.begin(), works.end(), [state](const auto &work) { return work->state == state; });
}

// Waits until every GPU is prepared. Before a burn a failure is no measurement of a GPU.
static void wait_until_ready(const std::vector<std::unique_ptr<Work>> &works, Clock::time_point last) {
    while (!all_are(works, State::ready)) {
        const bool late = Clock::now() > last;
        for (std::size_t gpu = 0; gpu < works.size(); ++gpu) {
            const State state = works[gpu]->state;
            if (state == State::stopped) std::fprintf(stderr, "GPU %zu cannot be prepared: %s\n", gpu, works[gpu]->reason.c_str());
            if (late && state == State::preparing) std::fprintf(stderr, "GPU %zu was not prepared in time\n", gpu);
            if (state == State::stopped || (late && state == State::preparing)) leave(1);
        }
        std::this_thread::sleep_for(milliseconds(100));
    }
}

// The GPUs at this moment. After the end a GPU that still computes is taken for dead.
static std::vector<Gpu> look(const std::vector<std::unique_ptr<Work>> &works, const Thermometer &thermometer, double elapsed_s, bool over) {
    std::vector<Gpu> gpus;
    for (std::size_t at = 0; at < works.size(); ++at) {
        const Work &work = *works[at];
        const State state = work.state;
        Gpu gpu;
        gpu.died = state == State::stopped || (over && state != State::ended);
        gpu.products = work.products;
        gpu.errors = work.errors;
        gpu.gflops = static_cast<double>(gpu.products) * OPERATIONS / 1e9 / std::max(elapsed_s, 1.0);
        gpu.degrees = thermometer.degrees(at);
        gpus.push_back(gpu);
    }
    return gpus;
}

static void print(const std::string &text) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
}

// Burns for the given time, and judges each GPU.
static void run(const Options &options, const std::vector<std::unique_ptr<Work>> &works, const Thermometer &thermometer, Signals &signals) {
    const auto began = Clock::now();
    const auto elapsed_s = [began] { return std::chrono::duration<double>(Clock::now() - began).count(); };
    const auto length_s = static_cast<double>(options.seconds);
    const double last_s = length_s + static_cast<double>(LAST_PRODUCTS.count());
    const auto is_done = [](const auto &work) { return work->state == State::ended || work->state == State::stopped; };
    signals.start = true;
    while (elapsed_s() < last_s && !std::all_of(works.begin(), works.end(), is_done)) {
        std::this_thread::sleep_for(seconds(1));
        signals.stop = elapsed_s() >= length_s;
        const double percent = std::min(elapsed_s() / length_s * 100, 99.9);
        print(write_progress(percent, look(works, thermometer, elapsed_s(), false)));
    }
    for (std::size_t gpu = 0; gpu < works.size(); ++gpu) {
        if (works[gpu]->state == State::stopped) std::fprintf(stderr, "GPU %zu stopped: %s\n", gpu, works[gpu]->reason.c_str());
    }
    if (all_are(works, State::stopped)) leave(1);
    const std::vector<Gpu> gpus = look(works, thermometer, elapsed_s(), true);
    print(write_progress(100, gpus) + write_verdicts(gpus));
}

int main(int count, char **words) {
    const Options options = read_options(count, words);
    const auto last = Clock::now() + PREPARATION;
    Signals signals;
    std::thread([&signals, last] { limit_list(signals, last); }).detach();
    const std::vector<std::string> addresses = list_gpus(count_gpus());
    signals.listed = true;
    if (options.lists) leave(0);
    Thermometer thermometer(addresses);
    std::vector<std::unique_ptr<Work>> works;
    for (std::size_t gpu = 0; gpu < addresses.size(); ++gpu) {
        works.push_back(std::make_unique<Work>());
        Work &work = *works.back();
        std::thread([gpu, &options, &signals, &work] { work_on(static_cast<int>(gpu), options, signals, work); }).detach();
    }
    wait_until_ready(works, last);
    std::printf("Burning for %ld seconds.\n", options.seconds);
    run(options, works, thermometer, signals);
    leave(0);
}
