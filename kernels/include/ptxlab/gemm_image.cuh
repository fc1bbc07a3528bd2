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
    static_assert(COLS % 16 == 0, "lines start in banks that are multiples of the padding");
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

    // What each of THREADS threads has of the block's share of the tile, 16 bytes of C a piece: of every round
    // of all parts' blocks one.
    template <int THREADS, typename C>
    struct Share {
        static constexpr int EACH = 16 / sizeof(C), PER_ROW = COLS / EACH, ROUND = PARTS * THREADS;
        static constexpr int PIECES = (ROWS * PER_ROW - 1) / ROUND + 1;
        unsigned sums[PIECES][EACH / 4][4];
        int first, count;  // the number of this thread's first piece, and how many pieces lie in rows of C
    };

    // Fetches the share's sums from the images of all parts, and adds them, in an order that their place in
    // the tile alone decides; `rows` of the tile are in C.
    template <int THREADS, typename C>
    __device__ __forceinline__ Share<THREADS, C> fetch(int rows, int thread) const
    {
        using Own = Share<THREADS, C>;
        Own own;
        own.first = place.part * THREADS + thread;
        own.count = min(ROWS, rows) * Own::PER_ROW;
#pragma unroll
        for (int piece = 0; piece < Own::PIECES; ++piece) {
            const int i = own.first + piece * Own::ROUND;
            if (i >= own.count) break;
#pragma unroll
            for (int four = 0; four < Own::EACH / 4; ++four)
                added_up(own.sums[piece][four], at(i / Own::PER_ROW, i % Own::PER_ROW * Own::EACH + 4 * four));
        }
        return own;
    }

    // Writes the share; (row, col) is the tile's first in C.
    template <typename Out, int THREADS, typename C, typename OnTheWay>
    static __device__ __forceinline__ void write(C* c, Share<THREADS, C>& own, const OnTheWay& epilogue,
                                                 int row, int col)
    {
        using Own = Share<THREADS, C>;
#pragma unroll
        for (int piece = 0; piece < Own::PIECES; ++piece) {
            const int i = own.first + piece * Own::ROUND;
            const int to_row = row + i / Own::PER_ROW, to_col = col + i % Own::PER_ROW * Own::EACH;
            if (i >= own.count) break;
            if (to_col >= epilogue.n) continue;  // rows of C are whole pieces of 16 bytes
            float2 pairs[Own::EACH / 2];
#pragma unroll
            for (int four = 0; four < Own::EACH / 4; ++four) {
                unsigned(&sums)[1][1][4] = reinterpret_cast<unsigned(&)[1][1][4]>(own.sums[piece][four]);
                convert_sums<T, Out>(sums);
                pairs[2 * four] = pair_of_sums(sums[0][0], 0, 0);
                pairs[2 * four + 1] = pair_of_sums(sums[0][0], 0, 1);
            }
#pragma unroll
            for (int j = 0; j < Own::EACH / 2; ++j)
                pairs[j] = finished(epilogue, pairs[j], to_row, to_col + 2 * j);
            store_pairs(c + static_cast<size_t>(to_row) * epilogue.n + to_col, pairs);
        }
    }

private:
    __device__ __forceinline__ unsigned at(int row, int col) const
    {
        return shared + (row * PITCH + col) * 4;
    }

    // Four neighbours of all parts. Each block begins with its own part and goes on to the next, so that not
    // all of them read from the same one at the same time.
    __device__ __forceinline__ void added_up(unsigned (&sums)[4], unsigned at) const
    {
        load_shared(sums, at);
#pragma unroll
        for (int i = 1; i < PARTS; ++i) {
            const int part = place.part + i < PARTS ? place.part + i : place.part + i - PARTS;
            unsigned more[4];
            cluster_load(more, map_to_block(at, place.rank_of_part(part)));
#pragma unroll
            for (int j = 0; j < 4; ++j) sums[j] = added<T>(sums[j], more[j]);
        }
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
