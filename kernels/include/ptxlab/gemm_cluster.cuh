// Blocks of a cluster that compute neighbouring tiles of C, ROWS x COLS of them, and share what they copy:
// those in one row of the cluster need the same tile of A, those in one column the same tile of B. Each
// brings its part of the tile to all of them. A cluster can be DEEP layers of such blocks, each
// with a part of k.
#pragma once

#include <ptxlab/cluster.cuh>
#include <ptxlab/gemm_ring.cuh>

namespace ptxlab {

// Arrives at an mbarrier of any block of the cluster, and hands over nothing but that: the warp has written
// nothing, and its products, which read the stage, are done. (An arrival that releases to the whole cluster
// waits for all memory operations of the thread first, in each step.) So who waits for a stage to be empty
// has nothing to see but that, and does so in the scope of its block: wait_empty().
__device__ __forceinline__ void arrive_in_cluster(unsigned barrier, unsigned block)
{
    asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];"
                 ::"r"(mbarrier_of_block(barrier, block))
                 : "memory");
}

template <int ROWS, int COLS, int DEEP = 1>
struct ClusterPlace {
    static constexpr int DOWN = ROWS, ACROSS = COLS, PARTS = DEEP;
    static constexpr int TILES = ROWS * COLS, BLOCKS = TILES * PARTS;
    static constexpr int NEIGHBOURS = ROWS + COLS - 1;  // in its row or column, itself among them
    int row, col, part;

    __device__ __forceinline__ ClusterPlace()
    {
        const int rank = BLOCKS == 1 ? 0 : cluster_rank();
        part = rank / TILES;
        row = rank % TILES / COLS;
        col = rank % COLS;
    }

    // A bit for each block in its row, which share a tile of A; and in its column, which share one of B.
    __device__ __forceinline__ unsigned short row_mask() const
    {
        return ((1 << COLS) - 1) << row * COLS + part * TILES;
    }
    __device__ __forceinline__ unsigned short col_mask() const
    {
        constexpr int column = ((1 << TILES) - 1) / ((1 << COLS) - 1);  // bits COLS apart
        return column << col + part * TILES;
    }

    // Which of the cluster's tiles the block has; and the rank of the one that has another part of it.
    __device__ __forceinline__ int tile() const { return row * COLS + col; }
    __device__ __forceinline__ int rank_of_part(int other) const { return other * TILES + tile(); }

    // Lanes of a warp say that it has read a stage, to each block that copies into it: one lane a block.
    __device__ __forceinline__ void release(unsigned empty, int lane) const
    {
        if constexpr (TILES == 1) {
            if (lane == 0) mbarrier_arrive(empty);
        } else if (lane < TILES && (lane / COLS == row || lane % COLS == col)) {
            arrive_in_cluster(empty, part * TILES + lane);
        }
    }

    // All threads of the cluster meet, and see what the others wrote to shared memory before.
    static __device__ __forceinline__ void hand_over()
    {
        arrive();
        wait();
    }

    // The same in two steps: what a thread has written or read before it arrives is done when the others
    // have waited.
    static __device__ __forceinline__ void arrive() { cluster_arrive<ClusterBarrier::release>(); }
    static __device__ __forceinline__ void wait() { cluster_wait<ClusterBarrier::release>(); }

    // All threads of the cluster meet, or of the block that stands alone. Nothing that they wrote is handed
    // over; what was initialised before is, by mbarrier_init_fence().
    static __device__ __forceinline__ void meet()
    {
        if constexpr (BLOCKS == 1) {
            __syncthreads();
        } else {
            cluster_arrive<ClusterBarrier::relaxed>();
            cluster_wait<ClusterBarrier::relaxed>();
        }
    }
};

}  // namespace ptxlab
