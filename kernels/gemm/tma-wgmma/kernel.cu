// tma-wgmma: the tensor cores of Hopper, fed by its copy engine. C = alpha A x B + beta C, C row-major.
//
// Idea: wgmma multiplies 64 rows of A by up to 256 columns of B, both read from shared memory by the tensor
// cores themselves: no ldmatrix, no fragments in registers, only the sums. TMA brings a whole tile at the
// request of one thread, already in the 128-byte swizzle that wgmma reads, with zeros for what lies outside
// of the matrix; when the bytes have landed, an mbarrier ends its phase. A block is one warpgroup with one
// place for the tiles: copy, wait, multiply, wait, again.
//
// What limits it: copies and products take turns. While the warpgroup waits for a tile, only other blocks on
// the same SM can keep the tensor cores busy.
//
// Measured (H200, 2026-11-30; bf16 tn, normal values, cold, all rungs in turn in one run): at 2048^3, 4096^3
// and 8192^3 375, 542 and 604 TFLOP/s; 54, 72 and 76 % of the faster library; 41, 60 and 66 % of the ceiling
// of wgmma; over ampere -17.5, +15.0 and +27.2 %. With f16 at 2048^3, 4096^3 and 8192^3 368, 531 and 584
// TFLOP/s; 55, 73 and 79 % of the faster library; 42, 60 and 66 % of the ceiling of wgmma; over ampere -17.6,
// +16.0 and +31.4 %.
//
// At 2048^3 an SM has two blocks at most of the three that it holds, and so fewer to take turns with: there
// it is slower than ampere, which copies ahead. It is here because it is the shortest kernel that has both
// TMA and wgmma, and shows what they do without a ring. A block of 64x256 is slower: at 4096^3 by a tenth.
//
// What the next rung changes (wgmma-pipelined): several tiles are on their way while one is multiplied.
//
// Macros: TYPE (half, __nv_bfloat16), OUT (half, __nv_bfloat16, float), A_K and B_K (1: the operand is
// contiguous in k, 0: in m or n), BM BN (the block's tile), GROUP, KERNEL (the name).

#include <ptxlab/elect.cuh>
#include <ptxlab/gemm_edges.cuh>
#include <ptxlab/gemm_operand.cuh>
#include <ptxlab/gemm_order.cuh>
#include <ptxlab/gemm_output.cuh>
#include <ptxlab/gemm_ring.cuh>

namespace {

constexpr int BK = ptxlab::TILE_DEPTH<TYPE>;
constexpr int PARTS = BM / 64;  // of 64 rows, an instruction each
using TileA = ptxlab::OperandTile<BM, A_K>;
using TileB = ptxlab::OperandTile<BN, B_K>;

}  // namespace

extern "C" __global__ void __launch_bounds__(128)
KERNEL(const __grid_constant__ ptxlab::TensorMap a, const __grid_constant__ ptxlab::TensorMap b, OUT* c,
       int m, int n, int k, float alpha, float beta)
{
    extern __shared__ __align__(1024) unsigned char memory[];  // the swizzle is one of absolute addresses
    const unsigned tile_a = static_cast<unsigned>(__cvta_generic_to_shared(memory));
    const unsigned tile_b = tile_a + TileA::BYTES;
    const unsigned landed = tile_b + TileB::BYTES;
    const ptxlab::TileAt at = ptxlab::grouped<GROUP>(blockIdx.x, (m - 1) / BM + 1, (n - 1) / BN + 1);
    const int row = at.row * BM, col = at.col * BN;

    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // alike in the warp, and known to be
    unsigned leader;
    if (threadIdx.x == 0) {
        ptxlab::mbarrier_init(landed, 1);
        ptxlab::mbarrier_init_fence();
    }
    __syncthreads();

    unsigned sums[PARTS][1][BN / 2];
    unsigned parity = 0;
#pragma unroll 1
    for (int depth = 0; depth < k; depth += BK) {
        if (warp == 0 && ptxlab::elect(~0u, leader)) {  // bytes outside of the matrix count too
            ptxlab::mbarrier_arrive_expect_tx(landed, TileA::BYTES + TileB::BYTES);
            TileA::load(tile_a, a, row, depth, landed);
            TileB::load(tile_b, b, col, depth, landed);
        }
        ptxlab::mbarrier_wait(landed, parity);
        parity ^= 1;
        ptxlab::wgmma_fence();
        ptxlab::multiply_tile<TYPE, BN, PARTS, 1, A_K, B_K>(sums, tile_a, tile_b, depth > 0);
        ptxlab::wgmma_commit();
        ptxlab::wgmma_wait<0>();
        __syncthreads();  // all four warps' products are done: the tiles may be overwritten
    }

#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        const int first = row + 64 * part + 16 * warp;
        ptxlab::write_sums<BN, OUT>(sums[part][0], {c, m, n, first, col, alpha, beta});
    }
}
