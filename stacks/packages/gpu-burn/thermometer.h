// Temperatures of the GPUs, by the driver's libnvidia-ml.so.1. The library is opened at run time: a
// burn without temperatures is a burn. A call can hang on a lost GPU, so a thread of its own reads.
#pragma once

#include <atomic>
#include <chrono>
#include <dlfcn.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

class Thermometer {
  public:
    // Starts to read the GPUs with these PCI addresses. The object lives until the process ends.
    explicit Thermometer(std::vector<std::string> addresses) : addresses_(std::move(addresses)), readings_(addresses_.size()) {
        std::thread([this] { read_always(); }).detach();
    }
    Thermometer(const Thermometer &) = delete;
    Thermometer &operator=(const Thermometer &) = delete;

    // Degrees Celsius of a GPU; -1 without a reading of the last ten seconds.
    int degrees(std::size_t gpu) const {
        const Reading &reading = readings_[gpu];
        return now_ms() - reading.at_ms < 10'000 ? reading.degrees.load() : -1;
    }

  private:
    struct Reading {
        std::atomic<int> degrees{-1};
        std::atomic<long long> at_ms{-1'000'000};
    };
    using Device = void *;

    static long long now_ms() {
        const auto now = std::chrono::steady_clock::now().time_since_epoch();
        return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
    }

    void read_always() {
        void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) return;
        const auto start = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
        const auto find = reinterpret_cast<int (*)(const char *, Device *)>(dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
        const auto read = reinterpret_cast<int (*)(Device, int, unsigned *)>(dlsym(library, "nvmlDeviceGetTemperature"));
        // 0 is NVML_SUCCESS, and as a sensor NVML_TEMPERATURE_GPU.
        if (start == nullptr || find == nullptr || read == nullptr || start() != 0) return;
        for (;; std::this_thread::sleep_for(std::chrono::seconds(1))) {
            for (std::size_t gpu = 0; gpu < addresses_.size(); ++gpu) {
                Device device = nullptr;
                unsigned degrees = 0;
                if (find(addresses_[gpu].c_str(), &device) != 0 || read(device, 0, &degrees) != 0) continue;
                readings_[gpu].degrees = static_cast<int>(degrees);
                readings_[gpu].at_ms = now_ms();
            }
        }
    }

    const std::vector<std::string> addresses_;
    std::vector<Reading> readings_;
};
