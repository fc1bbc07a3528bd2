// warp-specialized: some warps copy, others multiply. C = alpha A x B + beta C, C row-major.
//
// Idea: a warpgroup of its own, the producer, asks for tiles, as far ahead as there are empty stages; two
// consumers multiply and never wait for a place. Of the producer one thread works; so it gives its registers
// back (setmaxnreg), and the consumers, whose sums take 128 registers a thread, take them.
//
// What limits it: a block computes one tile. While it starts, and while it writes C, its SM's tensor cores
// have nothing to do, since a second block does not fit beside it.
//
// Measured (H200, 2026-11-30; bf16 tn, normal values, cold, all rungs in turn in one run): at 2048^3, 4096^3
// and 8192^3 547, 662 and 719 TFLOP/s; 78, 88 and 91 % of the faster library; 59, 74 and 79 % of the ceiling
// of wgmma; over wgmma-pipelined -1.0, -0.1 (noise) and +0.2 (noise) %. With f16 at 2048^3, 4096^3 and 8192^3
// 530, 644 and 664 TFLOP/s; 78, 88 and 90 % of the faster library; 60, 73 and 75 % of the ceiling of wgmma;
// over wgmma-pipelined -0.8 (noise), -0.2 (noise) and -0.5 (noise) %.
//
// It gains nothing over wgmma-pipelined, where four stages already keep the tensor cores busy: for each cycle
// both do the same within 2 %. It is here for what it makes possible: a producer that runs ahead into the
// next tile.
//
// What the next rung changes (persistent): a block goes on to the next tile, whose first stages the producer
// fills while the consumers still write C.
//
// Macros: TYPE (half, __nv_bfloat16), OUT (half, __nv_bfloat16, float), A_K and B_K (1: the operand is
// contiguous in k, 0: in m or n), BM BN (the block's tile, 64 rows a consumer), STAGES, GROUP,
// PRODUCER_REGISTERS, CONSUMER_REGISTERS, KERNEL.

#include <ptxlab/elect.cuh>
#include <ptxlab/gemm_edges.cuh>
#include <ptxlab/gemm_operand.cuh>
#include <ptxlab/gemm_order.cuh>
#include <ptxlab/gemm_output.cuh>
#include <ptxlab/gemm_ring.cuh>
#include <ptxlab/setmaxnreg.cuh>

namespace {

constexpr int BK = ptxlab::TILE_DEPTH<TYPE>;
constexpr int CONSUMERS = BM / 64;  // warpgroups; the producer comes first
using TileA = ptxlab::OperandTile<BM, A_K>;
using TileB = ptxlab::OperandTile<BN, B_K>;
constexpr int STAGE = TileA::BYTES + TileB::BYTES;
using Ring = ptxlab::Ring<STAGES>;
using Turn = ptxlab::Turn<STAGES>;

// One thread fills stage after stage.
__device__ __forceinline__ void produce(const ptxlab::TensorMap& a, const ptxlab::TensorMap& b,
                                        const Ring& ring, unsigned shared, int row, int col, int steps)
{
    Turn turn;
#pragma unroll 1
    for (int step = 0; step < steps; ++step, turn.advance()) {
        const unsigned stage = shared + turn.stage * STAGE, full = ring.full(turn.stage);
        ring.wait_empty(turn);
        ptxlab::mbarrier_arrive_expect_tx(full, STAGE);  // bytes outside of the matrix count too
        TileA::load(stage, a, row, step * BK, full);
        TileB::load(stage + TileA::BYTES, b, col, step * BK, full);
    }
}

// A warpgroup multiplies its 64 rows of all stages.
__device__ __forceinline__ void consume(unsigned (&sums)[1][1][BN / 2], const Ring& ring, unsigned shared,
                                        int consumer, int steps)
{
    Turn turn;
    int read = 0;  // the stage of the step before
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const unsigned stage = shared + turn.stage * STAGE;
        ring.wait_full(turn);
        ptxlab::wgmma_fence();
        ptxlab::multiply_tile<TYPE, BN, 1, 1, A_K, B_K>(sums, stage + consumer * ptxlab::BYTES_OF_64_ROWS,
                                                        stage + TileA::BYTES, step > 0);
        ptxlab::wgmma_commit();
        ptxlab::wgmma_wait<1>();  // the products of the step before are done
        if (step > 0 && threadIdx.x % 32 == 0) ptxlab::mbarrier_arrive(ring.empty(read));
        read = turn.stage;
        turn.advance();
    }
    ptxlab::wgmma_wait<0>();
}

}  // namespace

extern "C" __global__ void __launch_bounds__(128 * (1 + CONSUMERS), 1)
KERNEL(const __grid_constant__ ptxlab::TensorMap a, const __grid_constant__ ptxlab::TensorMap b, OUT* c,
       int m, int n, int k, float alpha, float beta)
{
    extern __shared__ __align__(1024) unsigned char memory[];  // the swizzle is one of absolute addresses
    const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(memory));
    const Ring ring(shared + STAGES * STAGE);
    const ptxlab::TileAt at = ptxlab::grouped<GROUP>(blockIdx.x, (m - 1) / BM + 1, (n - 1) / BN + 1);
    const int row = at.row * BM, col = at.col * BN;
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // alike in the warp, and known to be
    const int steps = (k - 1) / BK + 1;

    if (threadIdx.x == 0) ring.init(4 * CONSUMERS);
    __syncthreads();

    if (warp < 4) {
        ptxlab::setmaxnreg_dec<PRODUCER_REGISTERS>();
        unsigned leader;
        if (warp == 0 && ptxlab::elect(~0u, leader)) produce(a, b, ring, shared, row, col, steps);
    } else {
        ptxlab::setmaxnreg_inc<CONSUMER_REGISTERS>();
        unsigned sums[1][1][BN / 2];
        consume(sums, ring, shared, warp / 4 - 1, steps);
        const int first = row + (warp - 4) * 16;
        ptxlab::write_sums<BN, OUT>(sums[0][0], {c, m, n, first, col, alpha, beta});
    }
}
