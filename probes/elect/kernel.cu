// The lanes of a mask elect a leader, twice in each of two warps; every lane writes what it was told. Lanes
// outside the mask take no part and write that they did not. Macros: KERNEL.

#include <ptxlab/elect.cuh>

extern "C" __global__ void KERNEL(unsigned mask,
                                  unsigned *told)    // [warps][rounds][lanes][leader's number, is it me]
{
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (unsigned round = 0; round < 2; ++round) {
        unsigned *own = told + ((warp * 2 + round) * 32 + lane) * 2;
        unsigned leader = ~0u, elected = 0;
        if (mask >> lane & 1)
            elected = ptxlab::elect(mask, leader);
        own[0] = leader;
        own[1] = elected;
    }
}
