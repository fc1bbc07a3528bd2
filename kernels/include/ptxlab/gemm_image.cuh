// A tile of sums in shared memory, 32 bits each, row by row as in C: where wgmma has made it transposed
// (swap-AB), where the blocks of a cluster have parts of k, whose sums must be added, or where a tile is no
// whole panels for TMA. The threads then take four neighbours at a time, and write C from registers.
//
// Where there are parts, each block adds up some rows of the tile, and has those of every part in its shared
// memory: the others send them there (st.async), and the bytes count at an mbarrier. No one reads from
// another block, so that none must wait for another to end.
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

__device__ __forceinline__ void store_four(float* to, float2 left, float2 right)
{
    *reinterpret_cast<float4*>(to) = make_float4(left.x, left.y, right.x, right.y);
}
template <typename Out>
__device__ __forceinline__ void store_four(Out* to, float2 left, float2 right)
{
    *reinterpret_cast<uint2*>(to) = make_uint2(packed(left, Out()), packed(right, Out()));
}

// ROWS x COLS of C. A line is some banks longer than the tile is wide, so that lanes do not meet in a bank: 8
// where they lay pairs beside each other, 4 where they lay one sum below the other. The sums are of products
// of T.
template <typename T, typename Cluster, int ROWS, int COLS, bool TRANSPOSED>
struct SumsImage {
    static_assert(COLS % 16 == 0, "lines start in one of four banks");
    static constexpr int PITCH = COLS + (TRANSPOSED ? 4 : 8);  // in sums
    static constexpr int PARTS = Cluster::PARTS;
    static constexpr int SHARE = (ROWS + PARTS - 1) / PARTS;  // rows that a block adds up
    const Cluster& place;
    unsigned shared;   // [part][row of the share][column]
    unsigned arrived;  // an mbarrier, of one arrival
    int rows;          // of the tile, that are in C

    // One thread says how many bytes the parts of this block's share are.
    __device__ __forceinline__ void expect() const
    {
        mbarrier_arrive_expect_tx(arrived, PARTS * rows_of_share() * COLS * 4);
    }

    // A warp sends 16 rows of WIDE products of 64 x N side by side to where they are added; (row, col) is the
    // first, of the product.
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
                    put<1>(across, down, {sums[first]});
                    put<1>(across + 1, down, {sums[first + 1]});
                } else {
                    put<2>(down, across, {sums[first], sums[first + 1]});
                }
            }
        }
    }

    // Waits until the parts of the share are there, where there are some.
    __device__ __forceinline__ void wait() const
    {
        while (!mbarrier_try_wait<WaitScope::cluster>(arrived, 0)) {
        }
    }

    // THREADS threads add up the parts, in the order of k, and write the share; (row, col) is the tile's
    // first in C.
    template <typename Out, int THREADS, typename C, typename OnTheWay>
    __device__ __forceinline__ void write(C* c, const OnTheWay& epilogue, int row, int col, int thread) const
    {
        const int fours = rows_of_share() * (COLS / 4);
#pragma unroll 2
        for (int i = thread; i < fours; i += THREADS) {
            const int down = i / (COLS / 4), across = i % (COLS / 4) * 4;
            if (col + across >= epilogue.n) continue;
            unsigned sums[1][1][4];
            load_shared(sums[0][0], at(0, down, across));
#pragma unroll
            for (int part = 1; part < PARTS; ++part) {
                unsigned more[4];
                load_shared(more, at(part, down, across));
#pragma unroll
                for (int j = 0; j < 4; ++j) sums[0][0][j] = added<T>(sums[0][0][j], more[j]);
            }
            convert_sums<T, Out>(sums);
            const int to_row = row + place.part * SHARE + down, to_col = col + across;
            const float2 left = finished(epilogue, pair_of_sums(sums[0][0], 0, 0), to_row, to_col);
            const float2 right = finished(epilogue, pair_of_sums(sums[0][0], 0, 1), to_row, to_col + 2);
            store_four(c + static_cast<size_t>(to_row) * epilogue.n + to_col, left, right);
        }
    }

private:
    __device__ __forceinline__ int rows_of_share() const
    {
        return max(0, min(SHARE, min(ROWS, rows) - place.part * SHARE));
    }
    __device__ __forceinline__ unsigned at(int part, int row, int col) const
    {
        return shared + ((part * SHARE + row) * PITCH + col) * 4;
    }
    template <int WORDS>
    __device__ __forceinline__ void put(int row, int col, const unsigned (&sums)[WORDS]) const
    {
        if constexpr (PARTS == 1) {
            store_shared(at(0, row, col), sums);
        } else if (row < rows) {  // others have no place in C
            const int block = place.rank_of_part(row / SHARE);
            cluster_store_async<WORDS>(map_to_block(at(place.part, row % SHARE, col), block), sums,
                                       map_to_block(arrived, block));
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
