// The edges of a GEMM, so that the kernel of a rung can show its own idea alone: what lies outside of an
// operand is read as zeros, which add nothing to a product; what lies outside of C is neither read nor
// written; sums are scaled and converted on their way out.
//
// The unit is a chunk: 8 neighbouring 16-bit elements, 16 bytes, the most that a thread moves at once.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <ptxlab/cp_async.cuh>

namespace ptxlab {

constexpr int CHUNK = 8;

// A tile of an operand in global memory, seen by the thread that copies some of it. `corner` is the tile's
// first element, `stride` the distance between two lines (a line is what is contiguous), `lines` and `width`
// are what is left of the matrix from the corner on. `aligned` says that each line starts at a multiple of 16
// bytes: a chunk is then whole, or wholly outside, and comes at once. Else it comes element by element.
template <typename T, bool aligned>
struct TileSource {
    const T* corner;
    size_t stride;
    int lines, width;

    __device__ __forceinline__ TileSource(const T* matrix, int all_lines, int all_width, int line, int first)
        : corner(matrix + static_cast<size_t>(line) * all_width + first), stride(all_width),
          lines(all_lines - line), width(all_width - first)
    {
    }

    // The chunk at (line, first) of the tile.
    __device__ __forceinline__ uint4 chunk(int line, int first) const
    {
        return chunk_from(corner + line * stride + first, line, first);
    }

    // COUNT of them, `apart` lines from one to the next.
    template <int COUNT>
    __device__ __forceinline__ void fetch(uint4 (&chunks)[COUNT], int line, int first, int apart) const
    {
        const T* from = corner + line * stride + first;
        const size_t skip = apart * stride;
#pragma unroll
        for (int i = 0; i < COUNT; ++i, from += skip) chunks[i] = chunk_from(from, line + i * apart, first);
    }

    // The same straight into shared memory, from `target` on, `target_apart` elements from one to the next.
    // Aligned ones may be on their way for a while: the group that they are in must be waited for.
    template <int COUNT>
    __device__ __forceinline__ void copy(T* target, int target_apart, int line, int first, int apart) const
    {
        const T* from = corner + line * stride + first;
        const size_t skip = apart * stride;
#pragma unroll(aligned ? COUNT : 1)
        for (int i = 0; i < COUNT; ++i, from += skip, target += target_apart) {
            const bool inside = line + i * apart < lines && first < width;
            if constexpr (aligned)
                cp_async_16(static_cast<unsigned>(__cvta_generic_to_shared(target)), from, inside ? 16 : 0);
            else
                *reinterpret_cast<uint4*>(target) = chunk_from(from, line + i * apart, first);
        }
    }

private:
    __device__ __forceinline__ uint4 chunk_from(const T* from, int line, int first) const
    {
        const int inside = line < lines ? width - first : 0;
        if constexpr (aligned) {
            return inside > 0 ? *reinterpret_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
        } else {
            alignas(16) T elements[CHUNK];
#pragma unroll
            for (int e = 0; e < CHUNK; ++e) elements[e] = e < inside ? from[e] : T(0.0f);
            return *reinterpret_cast<const uint4*>(elements);
        }
    }
};

// Stores one element in shared memory.
template <typename T>
__device__ __forceinline__ void store_shared(unsigned to, T element)
{
    static_assert(sizeof(T) == 2);
    const unsigned short bits = *reinterpret_cast<unsigned short*>(&element);
    asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"(bits) : "memory");
}

// alpha * sum + beta * C, in float32. C is read only where beta is not zero.
template <typename Out>
__device__ __forceinline__ Out scaled(float sum, float alpha, float beta, const Out* c)
{
    const float product = alpha * sum;
    return static_cast<Out>(beta == 0.0f ? product : product + beta * static_cast<float>(*c));
}

// One store of 16 bytes. (Of an assignment the compiler made four stores of 4 where elements have 2 bytes.)
__device__ __forceinline__ void store_16(void* to, uint4 bytes)
{
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(bytes.x), "r"(bytes.y),
                 "r"(bytes.z), "r"(bytes.w)
                 : "memory");
}

// Where sums go: C from the element on that belongs to the first of them.
template <typename Out>
struct TileTarget {
    Out* corner;
    size_t stride;
    int rows, cols;  // that are left from the corner on
    float alpha, beta;

    __device__ __forceinline__ TileTarget(Out* c, int m, int n, int row, int col, float alpha, float beta)
        : corner(c + static_cast<size_t>(row) * n + col), stride(n), rows(m - row), cols(n - col),
          alpha(alpha), beta(beta)
    {
    }

    // Writes COUNT neighbouring sums at (row, col), with one store where that is possible.
    template <int COUNT, typename Sum>
    __device__ __forceinline__ void write(const Sum* sums, int row, int col) const
    {
        Out* to = corner + row * stride + col;
        const int inside = row < rows ? cols - col : 0;
        alignas(16) Out line[COUNT];
#pragma unroll
        for (int e = 0; e < COUNT; ++e)
            if (e < inside) line[e] = scaled(static_cast<float>(sums[e]), alpha, beta, to + e);
        if (COUNT <= inside && stride % COUNT == 0) {
            store<sizeof(line)>(to, line);
        } else {
#pragma unroll
            for (int e = 0; e < COUNT; ++e)
                if (e < inside) to[e] = line[e];
        }
    }

private:
    template <int BYTES>
    static __device__ __forceinline__ void store(Out* to, const Out* from)
    {
        if constexpr (BYTES == 4) *reinterpret_cast<unsigned*>(to) = *reinterpret_cast<const unsigned*>(from);
        if constexpr (BYTES == 8) *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(from);
#pragma unroll
        for (int i = 0; i < BYTES / 16; ++i)
            store_16(reinterpret_cast<uint4*>(to) + i, reinterpret_cast<const uint4*>(from)[i]);
    }
};

// Writes 16 rows of COLS sums that a warp has laid into shared memory, rows PITCH sums apart.
template <int COLS, int PITCH, typename Sum, typename Out>
__device__ __forceinline__ void write_rows(const Sum* sums, const TileTarget<Out>& target)
{
    constexpr int PER_ROW = COLS / CHUNK;  // lanes that share a row
#pragma unroll 1
    for (int chunk = threadIdx.x % 32; chunk < 16 * PER_ROW; chunk += 32) {
        const int row = chunk / PER_ROW, col = chunk % PER_ROW * CHUNK;
        target.template write<CHUNK>(sums + row * PITCH + col, row, col);
    }
}

}  // namespace ptxlab
