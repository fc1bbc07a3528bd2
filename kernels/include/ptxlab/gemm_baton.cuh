// Whose turn it is to multiply, of two warpgroups that would be in each other's way: while one does something
// else, the other has the tensor cores to itself.
#pragma once

#include <ptxlab/gemm_ring.cuh>

namespace ptxlab {

// Consumer 0 begins. Whoever has the turn hands it over when the last of its products have been started.
struct Baton {
    static constexpr int BYTES = 2 * 8;
    unsigned barriers;  // one for each consumer
    int consumer;
    unsigned parity;

    __device__ __forceinline__ Baton(unsigned barriers, int consumer)
        : barriers(barriers), consumer(consumer), parity(consumer ^ 1)
    {
    }

    // One thread does it, before a fence that makes barriers known.
    static __device__ __forceinline__ void init(unsigned barriers)
    {
        for (int consumer = 0; consumer < 2; ++consumer) mbarrier_init(barriers + 8 * consumer, 4);
    }

    __device__ __forceinline__ void take()
    {
        mbarrier_wait(barriers + 8 * consumer, parity);
        parity ^= 1;
    }

    // Each warp of the consumer does it.
    __device__ __forceinline__ void hand_over() const
    {
        if (threadIdx.x % 32 == 0) mbarrier_arrive(barriers + 8 * (consumer ^ 1));
    }
};

}  // namespace ptxlab
