// Fills A, B, C or the bias of a GEMM on the device, and counts the elements that are infinite in its type.
//
// Every value is a function of the element's logical row-major index alone (A is m x k, B is k x n, C
// is m x n, the bias 1 x n), so every layout holds the same matrix. It is computed in float64 and rounded
// once. The same functions in numpy: ptxlab/experiments/gemm/reference.py.
//
// Macros: INIT (normal, ints, naturals, seq, ones, zeros), TYPE (those of ptxlab/gemm_types.cuh, float,
// int), SPREAD (the standard deviation of normal values), KERNEL (its name).

#include <ptxlab/gemm_types.cuh>

using uint64 = unsigned long long;

// A counter-based generator: the finalizer of splitmix64 (Steele, Lea and Flood, 2014) over a weighted
// counter. No state, so any element can be made alone and in any order.
__device__ uint64 mixed(uint64 x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

__device__ uint64 random_bits(uint64 index, uint64 stream)
{
    return mixed(mixed(stream) + (index + 1) * 0x9e3779b97f4a7c15ull);
}

// Standard normal by Box and Muller: the upper 32 bits make the radius, the lower 32 the angle.
__device__ double normal(uint64 index, uint64 stream, int)
{
    const uint64 bits = random_bits(index, stream);
    const double radius = sqrt(-2.0 * log(((bits >> 32) + 1) * 0x1p-32));
    return SPREAD * radius * cospi((bits & 0xffffffffull) * 0x1p-31);
}

// -2 to 2: a sum of k products stays below 2^24, where float32 is exact, for every k below 2^22.
__device__ double ints(uint64 index, uint64 stream, int)
{
    return static_cast<double>((random_bits(index, stream) >> 32) % 5) - 2.0;
}

// 1 to 8: sums only grow, from some 100 products on beyond 2^11, up to where f16 is exact, and stay below
// 2^24 for every k below 2^18. So a sum, or a part of one, that was kept in 16 bits shows in a C of float32.
__device__ double naturals(uint64 index, uint64 stream, int)
{
    return static_cast<double>((random_bits(index, stream) >> 32) % 8) + 1.0;
}

// Every element carries its own index. Large matrices overflow f16: that is what this fill is for.
__device__ double seq(uint64 index, uint64, int which)
{
    return which == 0 ? index / 256.0 : which == 1 ? (index + 1.25) / 128.0 : (index + 0.5) / 64.0;
}

__device__ double ones(uint64, uint64, int) { return 1.0; }

__device__ double zeros(uint64, uint64, int) { return 0.0; }

__device__ half rounded(half, double value) { return __double2half(value); }

__device__ __nv_bfloat16 rounded(__nv_bfloat16, double value) { return __double2bfloat16(value); }

__device__ float rounded(float, double value) { return __double2float_rn(value); }

// CUDA rounds to the nearest; what is too large becomes the largest number.
__device__ __nv_fp8_e4m3 rounded(__nv_fp8_e4m3, double value) { return __nv_fp8_e4m3(value); }

__device__ __nv_fp8_e5m2 rounded(__nv_fp8_e5m2, double value) { return __nv_fp8_e5m2(value); }

// To 10 of the 52 bits behind the leading one: half of the last one is added, a little less where that is
// even.
__device__ ptxlab::Tf32 rounded(ptxlab::Tf32, double value)
{
    const uint64 bits = __double_as_longlong(value), kept = bits + (1ull << 41) - 1 + (bits >> 42 & 1);
    return ptxlab::Tf32(static_cast<float>(__longlong_as_double(kept >> 42 << 42)));
}

__device__ ptxlab::S8 rounded(ptxlab::S8, double value) { return rint(fmin(fmax(value, -127.0), 127.0)); }

__device__ int rounded(int, double value) { return __double2int_rn(value); }

// A grid-stride loop over the elements in storage order, so any grid is right.
extern "C" __global__ void KERNEL(TYPE* matrix, uint64* infinite_count, uint64 rows, uint64 cols,
                                  int by_columns, uint64 stream, int which)
{
    const uint64 step = static_cast<uint64>(gridDim.x) * blockDim.x;
    uint64 at = static_cast<uint64>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; at < rows * cols; at += step) {
        const uint64 row = by_columns ? at % rows : at / cols;
        const uint64 col = by_columns ? at / rows : at % cols;
        const TYPE value = rounded(TYPE(), INIT(row * cols + col, stream, which));
        matrix[at] = value;
        if (isinf(static_cast<float>(value))) {
            atomicAdd(infinite_count, 1ull);
        }
    }
}
