// wgmma-pipelined: tma-wgmma with a ring of stages. C = alpha A x B + beta C, C row-major.
//
// Idea: the tiles of STAGES steps have places of their own, and one thread asks for a tile as soon as its
// place is free: copies run while earlier tiles are multiplied. A stage has two mbarriers, "full" (the bytes
// have landed) and "empty" (the products that read it are done); gemm_ring.cuh says how their phases are
// counted. Products are asynchronous too: those of a step are started before the ones of the step before are
// waited for, so that the tensor cores always have the next instruction. Two warpgroups share a tile of
// 128x256: both read the same tile of B, each its own 64 rows of A.
//
// What limits it: the warp of that thread copies and multiplies, so its warpgroup waits for an empty stage
// before it can start its next product; and the sums of 64x256, 128 registers a thread, leave room for one
// block on an SM: while it starts or writes C, the tensor cores have nothing to do.
//
// Measured (H200, 2026-11-30; bf16 tn, normal values, cold, all rungs in turn in one run): at 2048^3, 4096^3
// and 8192^3 549, 674 and 723 TFLOP/s; 78, 88 and 92 % of the faster library; 59, 75 and 79 % of the ceiling
// of wgmma; over tma-wgmma +47.5, +22.5 and +20.6 %. With f16 at 2048^3, 4096^3 and 8192^3 531, 658 and 700
// TFLOP/s; 79, 89 and 92 % of the faster library; 60, 75 and 79 % of the ceiling of wgmma; over tma-wgmma
// +45.2, +20.2 and +17.2 %.
//
// What the next rung changes (warp-specialized): warps of their own ask for tiles, and do nothing else.
//
// Macros: TYPE (half, __nv_bfloat16), OUT (half, __nv_bfloat16, float), A_K and B_K (1: the operand is
// contiguous in k, 0: in m or n), BM BN (the block's tile, 64 rows a warpgroup), STAGES, GROUP, KERNEL.

#include <ptxlab/elect.cuh>
#include <ptxlab/gemm_edges.cuh>
#include <ptxlab/gemm_operand.cuh>
#include <ptxlab/gemm_order.cuh>
#include <ptxlab/gemm_output.cuh>
#include <ptxlab/gemm_ring.cuh>

namespace {

constexpr int BK = ptxlab::TILE_DEPTH<TYPE>;
constexpr int WARPGROUPS = BM / 64;
using TileA = ptxlab::OperandTile<BM, A_K>;
using TileB = ptxlab::OperandTile<BN, B_K>;
constexpr int STAGE = TileA::BYTES + TileB::BYTES;

}  // namespace

extern "C" __global__ void __launch_bounds__(128 * WARPGROUPS, 1)
KERNEL(const __grid_constant__ ptxlab::TensorMap a, const __grid_constant__ ptxlab::TensorMap b, OUT* c,
       int m, int n, int k, float alpha, float beta)
{
    extern __shared__ __align__(1024) unsigned char memory[];  // the swizzle is one of absolute addresses
    const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(memory));
    const ptxlab::Ring<STAGES> ring(shared + STAGES * STAGE);
    const ptxlab::TileAt at = ptxlab::grouped<GROUP>(blockIdx.x, (m - 1) / BM + 1, (n - 1) / BN + 1);
    const int row = at.row * BM, col = at.col * BN;
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // alike in the warp, and known to be
    const int steps = (k - 1) / BK + 1;

    if (threadIdx.x == 0) ring.init(4 * WARPGROUPS);
    __syncthreads();

    ptxlab::Turn<STAGES> filling;
    int filled = 0;
    const auto fill = [&] {  // all threads count, one asks
        if (filled == steps) return;
        unsigned leader;
        if (warp == 0 && ptxlab::elect(~0u, leader)) {
            const unsigned stage = shared + filling.stage * STAGE, full = ring.full(filling.stage);
            ring.wait_empty(filling);
            ptxlab::mbarrier_arrive_expect_tx(full, STAGE);  // bytes outside of the matrix count too
            TileA::load(stage, a, row, filled * BK, full);
            TileB::load(stage + TileA::BYTES, b, col, filled * BK, full);
        }
        filling.advance();
        ++filled;
    };
    for (int i = 0; i < STAGES - 1; ++i) fill();

    unsigned sums[1][1][BN / 2];
    ptxlab::Turn<STAGES> reading;
    int read = 0;  // the stage of the step before
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const unsigned stage = shared + reading.stage * STAGE;
        ring.wait_full(reading);
        ptxlab::wgmma_fence();
        ptxlab::multiply_tile<TYPE, BN, 1, 1, A_K, B_K>(sums, stage + warp / 4 * ptxlab::BYTES_OF_64_ROWS,
                                                        stage + TileA::BYTES, step > 0);
        ptxlab::wgmma_commit();
        ptxlab::wgmma_wait<1>();  // the products of the step before are done
        if (step > 0 && threadIdx.x % 32 == 0) ptxlab::mbarrier_arrive(ring.empty(read));
        read = reading.stage;
        reading.advance();
        fill();  // the stage that has just been read
    }
    ptxlab::wgmma_wait<0>();

    const int first = row + warp * 16;
    ptxlab::write_sums<BN, OUT>(sums[0][0], {c, m, n, first, col, alpha, beta});
}
