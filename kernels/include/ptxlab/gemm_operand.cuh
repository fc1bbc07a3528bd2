// A tile of A or B in shared memory, as TMA lays it there and as wgmma reads it: with the 128-byte swizzle,
// and as deep in k as a swizzled line holds elements, be they of 1, 2 or 4 bytes.
//
// SIZE is the tile's extent in m or n. K-major (contiguous in k): a line for each row, SIZE lines, one box of
// TMA. MN-major, which 16-bit elements alone can be: a line for each k holds 64 rows; such panels of 64 lines
// follow each other, a box each. Either way 64 rows take 8192 bytes, so that parts of a tile are found alike.
#pragma once

#include <ptxlab/cluster.cuh>
#include <ptxlab/gemm_types.cuh>
#include <ptxlab/tma_policy.cuh>
#include <ptxlab/wgmma.cuh>

namespace ptxlab {

constexpr int LINE = 128;        // bytes
constexpr int WGMMA_BYTES = 32;  // of a row of A, whatever its type: the k of an instruction
constexpr int BYTES_OF_64_ROWS = 64 * LINE;

template <typename T>
constexpr int TILE_DEPTH = LINE / sizeof(T);  // k of a tile

template <typename T>
constexpr Wgmma wgmma_type = Wgmma::f16;
template <>
constexpr Wgmma wgmma_type<__nv_bfloat16> = Wgmma::bf16;
template <>
constexpr Wgmma wgmma_type<Tf32> = Wgmma::tf32;
template <>
constexpr Wgmma wgmma_type<__nv_fp8_e4m3> = Wgmma::e4m3;
template <>
constexpr Wgmma wgmma_type<__nv_fp8_e5m2> = Wgmma::e5m2;
template <>
constexpr Wgmma wgmma_type<S8> = Wgmma::s8;

template <typename T>
constexpr Wgmma wgmma_sums = Wgmma::f32;
template <>
constexpr Wgmma wgmma_sums<S8> = Wgmma::s32;

template <int SIZE, bool K_MAJOR>
struct OperandTile {
    static_assert(SIZE % (K_MAJOR ? 8 : 64) == 0, "whole atoms of the swizzle");
    static_assert(!K_MAJOR || SIZE <= 256, "a box has at most 256 lines");
    static constexpr int BYTES = SIZE * LINE;

    // One thread copies the tile whose first row and first k these are; `shared` is a multiple of 1024.
    template <typename Policy = NoPolicy>
    static __device__ __forceinline__ void load(unsigned shared, const TensorMap& map, int row, int k,
                                                unsigned barrier, const Policy& policy = {})
    {
        if constexpr (K_MAJOR) {
            tma_load(shared, map, k, row, barrier, policy);
        } else {
#pragma unroll
            for (int panel = 0; panel < SIZE / 64; ++panel)
                tma_load(shared + panel * BYTES_OF_64_ROWS, map, row + 64 * panel, k, barrier, policy);
        }
    }

    // The same into each block of the cluster whose bit is set.
    template <typename Policy = NoPolicy>
    static __device__ __forceinline__ void multicast(unsigned shared, const TensorMap& map, int row, int k,
                                                     unsigned barrier, unsigned short blocks,
                                                     const Policy& policy = {})
    {
        if constexpr (K_MAJOR) {
            tma_multicast(shared, map, k, row, barrier, blocks, policy);
        } else {
#pragma unroll
            for (int panel = 0; panel < SIZE / 64; ++panel)
                tma_multicast(shared + panel * BYTES_OF_64_ROWS, map, row + 64 * panel, k, barrier, blocks,
                              policy);
        }
    }
};

// Brings a map to where TMA finds it, ahead of the first copy.
__device__ __forceinline__ void prefetch_map(const TensorMap& map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// What wgmma is told of an operand: where it starts, in units of 16 bytes, and how lines follow each other.
// SBO is the 1024 bytes of 8 lines; LBO, which MN-major operands wider than 64 look at, those of a panel.
__device__ __forceinline__ unsigned long long operand_descriptor(unsigned shared)
{
    constexpr unsigned long long lbo = BYTES_OF_64_ROWS / 16, sbo = 1024 / 16, swizzle_128 = 1;
    return swizzle_128 << 62 | sbo << 32 | lbo << 16 | (shared & 0x3ffff) >> 4;
}

// What leads from one instruction's k to the next one's: 32 bytes along the line, or 16 lines.
template <bool K_MAJOR>
constexpr int DESCRIPTOR_STEP = (K_MAJOR ? WGMMA_BYTES : 16 * LINE) / 16;

// A warpgroup multiplies its 64 M_PARTS rows of a tile of A by N_PARTS N columns of B, the whole depth, into
// d. `accumulate` says whether d holds sums already. The instructions run on after it returns:
// commit and wait.
template <typename T, int N, int M_PARTS, int N_PARTS, bool A_K, bool B_K>
__device__ __forceinline__ void multiply_tile(unsigned (&d)[M_PARTS][N_PARTS][N / 2], unsigned a, unsigned b,
                                              bool accumulate)
{
    constexpr Wgmma type = wgmma_type<T>;
    static_assert(sizeof(T) == 2 || (A_K && B_K), "only 16-bit elements may be MN-major");
    static_assert(N_PARTS == 1 || N % (B_K ? 8 : 64) == 0, "parts of B start at whole atoms");
    const unsigned long long first_a = operand_descriptor(a), first_b = operand_descriptor(b);
#pragma unroll
    for (int step = 0; step < LINE / WGMMA_BYTES; ++step) {
#pragma unroll
        for (int i = 0; i < M_PARTS; ++i) {
#pragma unroll
            for (int j = 0; j < N_PARTS; ++j) {
                const unsigned long long at_a =
                    first_a + step * DESCRIPTOR_STEP<A_K> + i * (BYTES_OF_64_ROWS / 16);
                const unsigned long long at_b = first_b + step * DESCRIPTOR_STEP<B_K> + j * (N * LINE / 16);
                wgmma<N, type, type, wgmma_sums<T>, !A_K, !B_K>(d[i][j], at_a, at_b, accumulate || step > 0);
            }
        }
    }
}

}  // namespace ptxlab
