// A tile of sums in shared memory, 32 bits each, row by row as in C: where wgmma has made it transposed
// (swap-AB), or where the blocks of a cluster have parts of k, whose sums must be added. The threads then
// take 16 bytes of C at a time, and write them from registers.
//
// Where there are parts, the blocks of the cluster share the work: each reads its part of every image.
#pragma once

#include <ptxlab/cluster.cuh>
#include <ptxlab/gemm_store.cuh>
#include <ptxlab/shared_access.cuh>

namespace ptxlab {

// Threads of some warps wait for each other; barrier 0 is that of __syncthreads().
__device__ __forceinline__ void meet_of(int threads)
{
    asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
}

// 16 bytes of C.
__device__ __forceinline__ void store_pairs(float* to, const float2 (&pairs)[2])
{
    *reinterpret_cast<float4*>(to) = make_float4(pairs[0].x, pairs[0].y, pairs[1].x, pairs[1].y);
}
template <typename Out>
__device__ __forceinline__ void store_pairs(Out* to, const float2 (&pairs)[4])
{
    *reinterpret_cast<uint4*>(to) = make_uint4(packed(pairs[0], Out()), packed(pairs[1], Out()),
                                               packed(pairs[2], Out()), packed(pairs[3], Out()));
}

// ROWS x COLS of C. A line is some banks longer than the tile is wide, so that lanes do not meet in a bank: 8
// where they lay pairs beside each other, 4 where they lay one sum below the other. The sums are of products
// of T.
template <typename T, typename Cluster, int ROWS, int COLS, bool TRANSPOSED>
struct SumsImage {
    static_assert(COLS % 16 == 0, "lines start in one of four banks");
    static constexpr int PITCH = COLS + (TRANSPOSED ? 4 : 8);  // in sums
    static constexpr int PARTS = Cluster::PARTS;
    const Cluster& place;
    unsigned shared;

    // A warp lays down 16 rows of WIDE products of 64 x N side by side; (row, col) is the first, of the
    // product.
    template <int N, int WIDE>
    __device__ __forceinline__ void lay(const unsigned (&d)[WIDE][N / 2], int row, int col) const
    {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int j = 0; j < WIDE * N / 8; ++j) {
                const unsigned(&sums)[N / 2] = d[j / (N / 8)];
                const int first = j % (N / 8) * 4 + 2 * half;
                const int down = row + lane / 4 + 8 * half, across = col + 8 * j + lane % 4 * 2;
                if constexpr (TRANSPOSED) {
                    store_shared<1>(at(across, down), {sums[first]});
                    store_shared<1>(at(across + 1, down), {sums[first + 1]});
                } else {
                    store_shared<2>(at(down, across), {sums[first], sums[first + 1]});
                }
            }
        }
    }

    // THREADS threads write what is this block's to write: of every round of all parts' blocks its own. Sums
    // come from the images of all parts, and are added in the order of k. (row, col) is the first in C.
    template <typename Out, int THREADS, typename C, typename OnTheWay>
    __device__ __forceinline__ void write(C* c, const OnTheWay& epilogue, int row, int col, int thread) const
    {
        constexpr int EACH = 16 / sizeof(C), PER_ROW = COLS / EACH;
        const int count = min(ROWS, epilogue.m - row) * PER_ROW;
#pragma unroll 2
        for (int i = place.part * THREADS + thread; i < count; i += PARTS * THREADS) {
            const int down = i / PER_ROW, across = i % PER_ROW * EACH;
            const int to_row = row + down, to_col = col + across;
            if (to_col >= epilogue.n) continue;  // rows of C are whole pieces of 16 bytes
            float2 pairs[EACH / 2];
#pragma unroll
            for (int four = 0; four < EACH / 4; ++four) {
                unsigned sums[1][1][4];
                added_up(sums[0][0], at(down, across + 4 * four));
                convert_sums<T, Out>(sums);
                pairs[2 * four] = pair_of_sums(sums[0][0], 0, 0);
                pairs[2 * four + 1] = pair_of_sums(sums[0][0], 0, 1);
            }
#pragma unroll
            for (int j = 0; j < EACH / 2; ++j)
                pairs[j] = finished(epilogue, pairs[j], to_row, to_col + 2 * j);
            store_pairs(c + static_cast<size_t>(to_row) * epilogue.n + to_col, pairs);
        }
    }

private:
    __device__ __forceinline__ unsigned at(int row, int col) const
    {
        return shared + (row * PITCH + col) * 4;
    }

    // Four neighbours of all parts.
    __device__ __forceinline__ void added_up(unsigned (&sums)[4], unsigned at) const
    {
        get(sums, 0, at);
#pragma unroll
        for (int part = 1; part < PARTS; ++part) {
            unsigned more[4];
            get(more, part, at);
#pragma unroll
            for (int j = 0; j < 4; ++j) sums[j] = added<T>(sums[j], more[j]);
        }
    }
    __device__ __forceinline__ void get(unsigned (&sums)[4], int part, unsigned at) const
    {
        if constexpr (PARTS == 1) load_shared(sums, at);
        else cluster_load(sums, map_to_block(at, place.rank_of_part(part)));
    }
    template <typename OnTheWay>
    static __device__ __forceinline__ float2 finished(const OnTheWay& epilogue, float2 pair, int row, int col)
    {
        typename OnTheWay::Two bias[1] = {};
        epilogue.fetch(bias, col);
        return epilogue(pair, row, col, bias[0]);
    }
};

}  // namespace ptxlab
