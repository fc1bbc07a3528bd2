// The loop over k of a consumer whose stages come from a cluster.
#pragma once

#include <ptxlab/gemm_cluster.cuh>
#include <ptxlab/gemm_operand.cuh>

namespace ptxlab {

// A warpgroup starts the products of `steps` stages, at least one, and gives each stage back when the products
// of the next have been started: one step is always in flight. `a` and `b` are its rows of A, and B, in stage
// 0; stages are STAGE bytes apart. The last products still run: returned is their stage, for end_products().
template <typename T, int STAGE, bool A_K, bool B_K, int M_PARTS, int N_PARTS, int SUMS, int STAGES,
          typename Cluster>
__device__ __forceinline__ int start_products(unsigned (&sums)[M_PARTS][N_PARTS][SUMS],
                                              const Ring<STAGES>& ring, Turn<STAGES>& turn,
                                              const Cluster& place, unsigned a, unsigned b, int steps)
{
    int read = 0;  // the stage of the step before
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const unsigned stage = turn.stage * STAGE;
        ring.wait_full(turn);
        wgmma_fence();
        multiply_tile<T, 2 * SUMS, M_PARTS, N_PARTS, A_K, B_K>(sums, a + stage, b + stage, step > 0);
        wgmma_commit();
        wgmma_wait<1>();  // the products of the step before are done
        if (step > 0) place.release(ring.empty(read), threadIdx.x % 32);
        read = turn.stage;
        turn.advance();
    }
    return read;
}

// Waits for the last products, and gives their stage back.
template <int STAGES, typename Cluster>
__device__ __forceinline__ void end_products(const Ring<STAGES>& ring, const Cluster& place, int read)
{
    wgmma_wait<0>();
    place.release(ring.empty(read), threadIdx.x % 32);
}

}  // namespace ptxlab
