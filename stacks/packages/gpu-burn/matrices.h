// The work of a GPU: one product of two matrices, computed over and over by cuBLAS, and compared bit
// by bit with the first result. cuBLAS gives the same bits for the same call on the same GPU. The
// first result is compared with sums in double precision, so a product that is always wrong is
// found too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <stdexcept>
#include <string>

constexpr int SIDE = 8192;
constexpr std::size_t VALUES = static_cast<std::size_t>(SIDE) * SIDE;
// Multiplications and additions of a product.
constexpr double OPERATIONS = 2.0 * SIDE * SIDE * SIDE;
constexpr int BLOCKS = 1024;
constexpr int THREADS = 256;
// Values of the first result that are computed again.
constexpr int SAMPLES = 4 * THREADS;
// Values are between -0.5 and 0.5. Tensor cores with TF32 differ by about 0.003 from the exact sum
// of 8192 terms; typical sums are about 7.5.
constexpr double TOLERANCE = 0.25;

inline void check(cudaError_t code, const char *call) {
    if (code != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(code));
}

inline void check(cublasStatus_t code, const char *call) {
    if (code != CUBLAS_STATUS_SUCCESS) throw std::runtime_error(std::string(call) + ": " + cublasGetStatusString(code));
}

// The bits of a number, as a word of its size.
template <typename Real> struct Bits;
template <> struct Bits<float> {
    using Word = unsigned int;
};
template <> struct Bits<double> {
    using Word = unsigned long long;
};

// A number that looks random, always the same for the same place (splitmix64).
__device__ inline unsigned long long mix(unsigned long long place) {
    unsigned long long word = (place + 1) * 0x9E3779B97F4A7C15ull;
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ull;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBull;
    return word ^ (word >> 31);
}

__device__ inline std::size_t first_place() { return static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline std::size_t all_threads() { return static_cast<std::size_t>(gridDim.x) * blockDim.x; }

template <typename Real> __global__ void fill_matrix(Real *matrix, unsigned long long from) {
    for (std::size_t at = first_place(); at < VALUES; at += all_threads())
        matrix[at] = static_cast<Real>(mix(from + at) >> 40) / static_cast<Real>(1 << 24) - static_cast<Real>(0.5);
}

// Counts the values of results `from` to `to` whose bits differ from those of the first result.
template <typename Word> __global__ void compare_results(const Word *results, std::size_t from, std::size_t to, unsigned long long *errors) {
    unsigned long long found = 0;
    for (std::size_t at = first_place(); at < VALUES; at += all_threads()) {
        const Word expected = results[at];
        for (std::size_t slot = from; slot < to; ++slot) found += results[slot * VALUES + at] != expected ? 1 : 0;
    }
    if (found != 0) atomicAdd(errors, found);
}

template <typename Real> __global__ void check_samples(const Real *a, const Real *b, const Real *result, unsigned long long *errors) {
    const unsigned long long chosen = mix(first_place());
    const std::size_t row = chosen % SIDE;
    const std::size_t column = (chosen >> 32) % SIDE;
    double sum = 0;
    for (std::size_t at = 0; at < SIDE; ++at) sum += static_cast<double>(a[row + at * SIDE]) * static_cast<double>(b[at + column * SIDE]);
    // False for a NaN too.
    const bool right = fabs(sum - static_cast<double>(result[row + column * SIDE])) < TOLERANCE;
    if (!right) atomicAdd(errors, 1ull);
}

inline cublasStatus_t multiply(cublasHandle_t handle, const float *a, const float *b, float *result) {
    const float one = 1, zero = 0;
    return cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, SIDE, SIDE, SIDE, &one, a, SIDE, b, SIDE, &zero, result, SIDE);
}

inline cublasStatus_t multiply(cublasHandle_t handle, const double *a, const double *b, double *result) {
    const double one = 1, zero = 0;
    return cublasDgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, SIDE, SIDE, SIDE, &one, a, SIDE, b, SIDE, &zero, result, SIDE);
}

// Two matrices, and results in nine tenths of the free memory of the thread's GPU. The end of the
// process frees the memory. Each call throws where the GPU does not answer well.
template <typename Real> class Matrices {
  public:
    explicit Matrices(bool tensor_cores) {
        check(cublasCreate(&handle_), "cublasCreate");
        check(cublasSetMathMode(handle_, tensor_cores ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH), "cublasSetMathMode");
        std::size_t free = 0, total = 0;
        check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
        const std::size_t fitting = free / 10 * 9 / BYTES;
        if (fitting < 4) throw std::runtime_error("only " + std::to_string(free >> 20) + " MiB of memory are free");
        slots_ = fitting - 2;
        check(cudaMalloc(&a_, BYTES), "cudaMalloc");
        check(cudaMalloc(&b_, BYTES), "cudaMalloc");
        check(cudaMalloc(&results_, slots_ * BYTES), "cudaMalloc");
        check(cudaMalloc(&errors_, sizeof *errors_), "cudaMalloc");
        check(cudaMemset(errors_, 0, sizeof *errors_), "cudaMemset");
        fill_matrix<Real><<<BLOCKS, THREADS>>>(a_, 0);
        fill_matrix<Real><<<BLOCKS, THREADS>>>(b_, VALUES);
        check(cudaGetLastError(), "fill_matrix");
        check(multiply(handle_, a_, b_, results_), "the first product");
        check_samples<Real><<<SAMPLES / THREADS, THREADS>>>(a_, b_, results_, errors_);
        check(cudaGetLastError(), "check_samples");
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }

    // Computes and compares at most so many products, and returns their number. Before, their memory
    // gets bits that no product has: a product that was never computed differs.
    std::size_t run(std::size_t most) {
        const std::size_t to = std::min(next_ + most, slots_);
        const std::size_t count = to - next_;
        check(cudaMemset(results_ + next_ * VALUES, 0xff, count * BYTES), "cudaMemset");
        for (std::size_t slot = next_; slot < to; ++slot) check(multiply(handle_, a_, b_, results_ + slot * VALUES), "a product");
        using Word = typename Bits<Real>::Word;
        compare_results<Word><<<BLOCKS, THREADS>>>(reinterpret_cast<const Word *>(results_), next_, to, errors_);
        check(cudaGetLastError(), "compare_results");
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        next_ = to == slots_ ? 1 : to;
        return count;
    }

    // The number of wrong values so far.
    unsigned long long errors() const {
        unsigned long long errors = 0;
        check(cudaMemcpy(&errors, errors_, sizeof errors, cudaMemcpyDeviceToHost), "cudaMemcpy");
        return errors;
    }

  private:
    static constexpr std::size_t BYTES = VALUES * sizeof(Real);
    cublasHandle_t handle_ = nullptr;
    Real *a_ = nullptr, *b_ = nullptr, *results_ = nullptr;
    unsigned long long *errors_ = nullptr;
    std::size_t slots_ = 0, next_ = 1;
};
