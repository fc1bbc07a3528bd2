// What becomes of sums on their way to C, in float32: activation(alpha sum + beta C + bias). Each part is
// there only where it is asked for. The bias has an element for each column, in the type of C, as linear
// layers and the epilogues of cuBLASLt have it.
#pragma once

#include <ptxlab/gemm_output.cuh>

namespace ptxlab {

enum class Activation { none, relu, gelu };

// Zero for what is negative. NaN stays NaN: a sum that went wrong must not look like a negative one.
__device__ __forceinline__ float relu(float x)
{
    float y;
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
    return y;
}

// x / 2 (1 + tanh u) with u = sqrt(2 / pi) (x + 0.044715 x^3): the approximation of GELU by tanh. It is
// written as x / (1 + e^-2u), in which nothing cancels where x is negative: off by at most 2^-21 |x|.
__device__ __forceinline__ float gelu(float x)
{
    constexpr float LINEAR = -2.3022082f, CUBIC = -0.10294324f;  // of -2u log2(e)
    float power, part;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * fmaf(CUBIC * x, x, LINEAR)));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(part) : "f"(1.0f + power));
    return x * part;
}

template <Activation ACTIVATION>
__device__ __forceinline__ float activated(float x)
{
    if constexpr (ACTIVATION == Activation::relu) return relu(x);
    if constexpr (ACTIVATION == Activation::gelu) return gelu(x);
    return x;
}

// Two neighbours of C or of the bias, at an even place, as they lie there; and as numbers.
__device__ __forceinline__ half2 load_two(const half* from)
{
    return *reinterpret_cast<const half2*>(from);
}
__device__ __forceinline__ __nv_bfloat162 load_two(const __nv_bfloat16* from)
{
    return *reinterpret_cast<const __nv_bfloat162*>(from);
}
__device__ __forceinline__ float2 load_two(const float* from)
{
    return *reinterpret_cast<const float2*>(from);
}

__device__ __forceinline__ float2 pair_of(half2 two) { return __half22float2(two); }
__device__ __forceinline__ float2 pair_of(__nv_bfloat162 two) { return __bfloat1622float2(two); }
__device__ __forceinline__ float2 pair_of(float2 two) { return two; }

// C is read only where SCALED says that factors are not 1 and 0, and beta is not 0.
template <typename Out, bool SCALED, bool BIAS = false, Activation ACTIVATION = Activation::none>
struct Epilogue {
    using Two = decltype(load_two(static_cast<const Out*>(nullptr)));
    const Out* c;
    int m, n;
    float alpha, beta;
    const Out* bias = nullptr;

    // A warp has the bias of COLS columns brought near, while their sums are made.
    template <int COLS>
    __device__ __forceinline__ void prefetch(int col) const
    {
        constexpr int LINE = 128 / sizeof(Out);
        const int first = col + threadIdx.x % 32 * LINE;
        if (BIAS && first < min(col + COLS, n)) asm volatile("prefetch.global.L1 [%0];" ::"l"(bias + first));
    }

    // The bias of COUNT pairs of columns, 8 columns apart. It takes a while: ahead of the sums.
    template <int COUNT>
    __device__ __forceinline__ void fetch(Two (&biases)[COUNT], int col) const
    {
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            if (BIAS && col + 8 * i < n) biases[i] = load_two(bias + col + 8 * i);
    }

    // The pair that belongs to (row, col) and its right neighbour; rows of C are even.
    __device__ __forceinline__ float2 operator()(float2 pair, int row, int col, Two of_columns) const
    {
        if constexpr (SCALED) {
            pair.x *= alpha, pair.y *= alpha;
            if (beta != 0.0f && row < m && col < n) {
                const float2 before = pair_of(load_two(c + static_cast<size_t>(row) * n + col));
                pair.x += beta * before.x, pair.y += beta * before.y;
            }
        }
        if constexpr (BIAS) {
            const float2 added = pair_of(of_columns);
            pair.x += added.x, pair.y += added.y;
        }
        return {activated<ACTIVATION>(pair.x), activated<ACTIVATION>(pair.y)};
    }
};

}  // namespace ptxlab
