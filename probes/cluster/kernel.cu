// Every block writes out what the registers say of its place. Then, round by round, it puts a number into its own
// shared memory, waits for its cluster, and reads the number of the block whose rank is one higher; it waits again
// before the number changes, and before anyone ends. Macros: KERNEL, BARRIER (of ptxlab::ClusterBarrier).

#include <ptxlab/cluster.cuh>

template <ptxlab::ClusterBarrier form>
__device__ __forceinline__ void meet()
{
    if constexpr (form == ptxlab::ClusterBarrier::relaxed)
        ptxlab::cluster_fence();
    ptxlab::cluster_arrive<form>();
    ptxlab::cluster_wait<form>();
}

extern "C" __global__ void KERNEL(unsigned *places,      // [blocks of all launches][20]
                                  unsigned *received,    // [blocks of all launches][rounds]
                                  unsigned first,        // block of this launch among all
                                  unsigned rounds)
{
    using namespace ptxlab;
    constexpr unsigned FACTS = 20;
    constexpr ClusterBarrier form = ClusterBarrier::BARRIER;
    __shared__ unsigned number;
    const unsigned own = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const unsigned rank = cluster_rank(), size = cluster_size();
    const bool acts = threadIdx.x == 0;

    if (acts) {
        const Place all[] = {{blockIdx.x, blockIdx.y, blockIdx.z}, {gridDim.x, gridDim.y, gridDim.z},
                             cluster_id(), clusters_of_grid(), block_in_cluster(), blocks_of_cluster()};
        unsigned *out = places + (first + own) * FACTS;
        for (unsigned i = 0; i < 6; ++i) {
            out[3 * i] = all[i].x;
            out[3 * i + 1] = all[i].y;
            out[3 * i + 2] = all[i].z;
        }
        out[18] = rank;
        out[19] = size;
    }
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(&number));
    const unsigned there = map_to_block(address, (rank + 1) % size);
#pragma unroll 1
    for (unsigned round = 0; round < rounds; ++round) {
        if (acts)
            number = (first + own) * rounds + round;
        meet<form>();
        if (acts) {
            unsigned found[1];
            cluster_load(found, there);
            received[(first + own) * rounds + round] = found[0];
        }
        meet<form>();
    }
}
