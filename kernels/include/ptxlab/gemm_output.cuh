// From the accumulators of a warpgroup to C. A warp holds 16 rows of a product of 64 x N: of a lane's sums 4j
// and 4j + 1 are in row lane / 4, columns 8j + 2 (lane % 4) and the next; 4j + 2 and 4j + 3 are 8 rows below.
#pragma once

#include <ptxlab/gemm_edges.cuh>
#include <ptxlab/gemm_types.cuh>

namespace ptxlab {

// Sums of integers are integers, and those of all others float32.
template <typename T>
constexpr bool is_integer = false;
template <>
constexpr bool is_integer<S8> = true;
template <>
constexpr bool is_integer<int> = true;

// The sum of two sums of products of T.
template <typename T>
__device__ __forceinline__ unsigned added(unsigned x, unsigned y)
{
    if constexpr (is_integer<T>) return x + y;
    else return __float_as_uint(__uint_as_float(x) + __uint_as_float(y));
}

// How C passes through registers and shared memory. What stays an integer is 32 bits that are moved as they
// are.
template <typename Out>
struct Passing {
    using Type = Out;
};
template <>
struct Passing<int> {
    using Type = float;
};

// Makes integers float32 where C is not to hold integers.
template <typename T, typename Out, int I, int J, int K>
__device__ __forceinline__ void convert_sums(unsigned (&sums)[I][J][K])
{
    if constexpr (is_integer<T> && !is_integer<Out>) {
        unsigned* const flat = &sums[0][0][0];
#pragma unroll
        for (int i = 0; i < I * J * K; ++i) flat[i] = __float_as_uint(__int2float_rn(flat[i]));
    }
}

// The two sums of a pair: half 1 is 8 rows below half 0.
template <int N>
__device__ __forceinline__ float2 pair_of_sums(const unsigned (&d)[N], int j, int half)
{
    return make_float2(__uint_as_float(d[4 * j + 2 * half]), __uint_as_float(d[4 * j + 2 * half + 1]));
}

__device__ __forceinline__ void store_pair(half* to, float2 pair)
{
    *reinterpret_cast<half2*>(to) = __floats2half2_rn(pair.x, pair.y);
}
__device__ __forceinline__ void store_pair(__nv_bfloat16* to, float2 pair)
{
    *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(pair.x, pair.y);
}
__device__ __forceinline__ void store_pair(float* to, float2 pair) { *reinterpret_cast<float2*>(to) = pair; }

// Writes them from the registers; `target` starts at the warp's 16 rows and at the product's first column.
// Where C is not read and its rows are even, pairs are written whole, which is the usual case.
template <int N, typename Out>
__device__ __forceinline__ void write_sums(const unsigned (&d)[N / 2], const TileTarget<Out>& target)
{
    const int row = threadIdx.x % 32 / 4, col = threadIdx.x % 4 * 2;
    const bool whole = target.beta == 0.0f && target.stride % 2 == 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        Out* const to = target.corner + (row + 8 * half) * target.stride + col;
        const int inside = row + 8 * half < target.rows ? target.cols - col : 0;
#pragma unroll
        for (int j = 0; j < N / 8; ++j) {
            const float2 pair = pair_of_sums(d, j, half);
            if (whole) {
                if (8 * j < inside) store_pair(to + 8 * j, {target.alpha * pair.x, target.alpha * pair.y});
            } else {
                const float sums[2] = {pair.x, pair.y};
                target.template write<2>(sums, row + 8 * half, 8 * j + col);
            }
        }
    }
}

}  // namespace ptxlab
