// blackwell: the sums leave the registers. C = alpha A x B + beta C, C row-major. For sm_100a: it is
// compiled, and was not run, for no such chip was at hand.
//
// Idea: tcgen05.mma is issued by one thread, reads both operands from shared memory and adds up in tensor
// memory, of which a block has 512 columns of 128 lanes: a row of the tile is a lane, a column of it a
// column. So no warp has to stand by with registers full of sums, and two tiles fit. A block stays, and its
// warps have one task each:
//   warp 4      one thread copies tiles of A and B into a ring of stages, as the rungs below do,
//   warp 5      one thread multiplies a stage as soon as it is full; the tensor cores themselves say when it
//               is empty, and when a tile is summed up (tcgen05.commit arrives at an mbarrier),
//   warps 0-3   load the sums of a tile, each the 32 lanes that it reaches, lay them into panels of shared
//               memory, and have TMA write these, while warp 5 is at the next tile, in the other half of
//               tensor memory.
// Three rings then, each with its own "full" and "empty": stages, the two sums, and the panels of a warp,
// whose groups of stores are waited for.
//
// What the descriptors say comes from the host, where ptxlab's model of them makes them.
//
// What limits it, as far as it can be told without running: a stage of 128x64 and 256x64 takes the tensor
// cores 512 cycles, in which 48 KB come from the L2, 96 bytes a cycle and SM. Two blocks that multiply
// together (cta_group::2) would load half of B each; this kernel has blocks that stand alone.
//
// Macros: TYPE (half, __nv_bfloat16), OUT (half, __nv_bfloat16, float), A_K and B_K (1: the operand is
// contiguous in k, 0: in m or n), BM BN (the block's tile: 128 rows; 64, 128 or 256 columns), STAGES, BUFFERS
// (panels of a warp), SCALED (0: alpha is 1 and beta 0), GROUP, KERNEL.

#include <ptxlab/bulk_copy.cuh>
#include <ptxlab/elect.cuh>
#include <ptxlab/gemm_operand.cuh>
#include <ptxlab/gemm_order.cuh>
#include <ptxlab/gemm_ring.cuh>
#include <ptxlab/gemm_store.cuh>
#include <ptxlab/tcgen05.cuh>

namespace {

constexpr int BK = ptxlab::TILE_DEPTH<TYPE>;
constexpr int STORING = 4;  // warps, the first ones; of the others one thread each is at work
constexpr int PRODUCER = 4, MULTIPLIER = 5, WARPS = 6;
using TileA = ptxlab::OperandTile<BM, A_K>;
using TileB = ptxlab::OperandTile<BN, B_K>;
constexpr int STAGE = TileA::BYTES + TileB::BYTES;
constexpr int PRODUCTS = ptxlab::LINE / 32;  // of a stage: 32 bytes of a line are the k of one
using Ring = ptxlab::Ring<STAGES>;
using Sums = ptxlab::Ring<2>;
using Epilogue = ptxlab::Epilogue<OUT, SCALED>;
using ptxlab::TensorMap;

constexpr int LANES = 32;                // of a warp, which are rows of the tile
constexpr int COLS = 128 / sizeof(OUT);  // of a panel
constexpr int PANEL = LANES * 128;       // bytes
constexpr int LOAD = 32;                 // columns that a warp loads at once

// The tiles of this block, one after the other.
struct Tiles {
    int down, across;
    int index = blockIdx.x;

    __device__ __forceinline__ bool next(int& row, int& col)
    {
        if (index >= down * across) return false;
        const ptxlab::TileAt at = ptxlab::serpentine<GROUP>(index, down, across);
        row = at.row * BM;
        col = at.col * BN;
        index += gridDim.x;
        return true;
    }
};

// One thread fills stage after stage, tile after tile.
__device__ __forceinline__ void produce(const TensorMap& a, const TensorMap& b, const Ring& ring,
                                        unsigned shared, Tiles tiles, int steps)
{
    ptxlab::Turn<STAGES> turn;
    int row, col;
    while (tiles.next(row, col)) {
#pragma unroll 1
        for (int step = 0; step < steps; ++step, turn.advance()) {
            const unsigned stage = shared + turn.stage * STAGE, full = ring.full(turn.stage);
            ring.wait_empty(turn);
            ptxlab::mbarrier_arrive_expect_tx(full, STAGE);  // bytes outside of the matrix count too
            TileA::load(stage, a, row, step * BK, full);
            TileB::load(stage + TileA::BYTES, b, col, step * BK, full);
        }
    }
    ring.drain(turn);  // the block must not end while the tensor cores still arrive at its barriers
}

// One thread multiplies them. Where a tile's first product goes, nothing is added to what lies there.
__device__ __forceinline__ void multiply(unsigned long long a, unsigned long long b, unsigned instruction,
                                         const Ring& ring, const Sums& sums, unsigned tensor, Tiles tiles,
                                         int steps)
{
    constexpr ptxlab::Tcgen05Kind kind = ptxlab::Tcgen05Kind::f16;
    ptxlab::Turn<STAGES> turn;
    ptxlab::Turn<2> sum;
    int row, col;
    while (tiles.next(row, col)) {
        sums.wait_empty(sum);
        ptxlab::tcgen05_fence_after();
#pragma unroll 1
        for (int step = 0; step < steps; ++step, turn.advance()) {
            ring.wait_full(turn);
            ptxlab::tcgen05_fence_after();
            const unsigned units = turn.stage * (STAGE / 16);  // as descriptors count
#pragma unroll
            for (int i = 0; i < PRODUCTS; ++i) {
                const unsigned long long at_a = a + units + i * ptxlab::DESCRIPTOR_STEP<A_K>;
                const unsigned long long at_b = b + units + i * ptxlab::DESCRIPTOR_STEP<B_K>;
                ptxlab::tcgen05_mma<kind, 1, false>(tensor + sum.stage * BN, at_a, at_b, instruction,
                                                    step > 0 || i > 0);
            }
            ptxlab::tcgen05_commit<1>(ring.empty(turn.stage));
        }
        ptxlab::tcgen05_commit<1>(sums.full(sum.stage));
        sum.advance();
    }
}

// A warp lays a lane's sums into its line of a panel, 16 bytes at a time. Eight lanes meet in no bank, for
// the panel is swizzled; TMA takes that out again.
__device__ __forceinline__ void lay(unsigned panel, const unsigned (&cells)[LOAD], int first,
                                    const Epilogue& epilogue, int row, int col)
{
    constexpr int IN_CHUNK = 16 / sizeof(OUT);
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < LOAD; i += IN_CHUNK) {
        alignas(16) OUT chunk[IN_CHUNK];
#pragma unroll
        for (int pair = 0; pair < IN_CHUNK; pair += 2) {
            const float2 sums = {__uint_as_float(cells[i + pair]), __uint_as_float(cells[i + pair + 1])};
            ptxlab::store_pair(chunk + pair, epilogue(sums, row + lane, col + i + pair, {}));
        }
        const uint4 bytes = *reinterpret_cast<const uint4*>(chunk);
        const unsigned place = panel + lane * 128 + ((first + i) / IN_CHUNK ^ lane % 8) * 16;
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(place), "r"(bytes.x), "r"(bytes.y),
                     "r"(bytes.z), "r"(bytes.w)
                     : "memory");
    }
}

// A warp writes its 32 rows of every tile.
__device__ __forceinline__ void store(const TensorMap& to, const Sums& sums, unsigned tensor,
                                      unsigned panels, int warp, const Epilogue& epilogue, Tiles tiles)
{
    const bool speaks = threadIdx.x % 32 == 0;  // for its warp
    ptxlab::Turn<2> sum;
    int row, col, buffer = 0;
    while (tiles.next(row, col)) {
        row += warp * LANES;
        const unsigned tile = tensor + (warp * LANES << 16) + sum.stage * BN;
        sums.wait_full(sum);
        ptxlab::tcgen05_fence_after();
#pragma unroll 1
        for (int first = 0; first < BN; first += COLS) {
            const unsigned panel = panels + buffer * PANEL;
            if (speaks) ptxlab::tma_wait<BUFFERS - 1, true>();  // what lay there before has been read
            __syncwarp();
#pragma unroll
            for (int part = 0; part < COLS; part += LOAD) {
                unsigned cells[LOAD];
                ptxlab::tcgen05_ld<ptxlab::Tmem::s32x32b, LOAD>(cells, tile + first + part);
                ptxlab::tcgen05_wait_ld(cells);
                lay(panel, cells, part, epilogue, row, col + first + part);
            }
            ptxlab::fence_proxy_async_shared();  // each lane's own writes, before one lane has TMA read them
            __syncwarp();
            if (speaks) {
                if (row < epilogue.m && col + first < epilogue.n)
                    ptxlab::tma_store<2>(to, {col + first, row, 0, 0, 0}, panel);
                ptxlab::tma_commit();  // an empty group too: the groups are counted
            }
            buffer = buffer + 1 == BUFFERS ? 0 : buffer + 1;
        }
        ptxlab::tcgen05_fence_before();
        __syncwarp();
        if (speaks) ptxlab::mbarrier_arrive(sums.empty(sum.stage));
        sum.advance();
    }
    if (speaks) ptxlab::tma_wait<0, true>();  // shared memory stays until it is read
}

}  // namespace

extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
KERNEL(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
       const __grid_constant__ TensorMap to, const OUT* c, int m, int n, int k, float alpha, float beta,
       unsigned long long operand_a, unsigned long long operand_b,  // descriptors of shared memory, from 0 on
       unsigned instruction)                                        // that of the instruction
{
    extern __shared__ __align__(1024) unsigned char memory[];  // the swizzle is one of absolute addresses
    const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(memory));
    const unsigned panels = shared + STAGES * STAGE;
    const Ring ring(panels + STORING * BUFFERS * PANEL);
    const Sums sums(ring.barriers + Ring::BYTES);
    const unsigned slot = sums.barriers + Sums::BYTES;
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // alike in the warp, and known to be
    const Tiles tiles{(m - 1) / BM + 1, (n - 1) / BN + 1};
    const int steps = (k - 1) / BK + 1;

    if (warp == MULTIPLIER) {
        ptxlab::tcgen05_alloc<2 * BN, 1>(slot);
        ptxlab::tcgen05_relinquish<1>();
    }
    if (threadIdx.x == 0) {
        ring.init(1);  // the tensor cores
        sums.init(STORING);
    }
    ptxlab::fence_proxy_async_shared();  // nothing written so far comes after what TMA reads
    ptxlab::tcgen05_fence_before();
    __syncthreads();
    ptxlab::tcgen05_fence_after();
    unsigned tensor, leader;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(tensor) : "r"(slot) : "memory");

    if (warp == PRODUCER) {
        if (ptxlab::elect(~0u, leader)) produce(a, b, ring, shared, tiles, steps);
    } else if (warp == MULTIPLIER) {
        const unsigned units = (shared & 0x3ffff) / 16;
        if (ptxlab::elect(~0u, leader))
            multiply(operand_a + units, operand_b + units + TileA::BYTES / 16, instruction, ring, sums,
                     tensor, tiles, steps);
    } else {
        store(to, sums, tensor, panels + warp * BUFFERS * PANEL, warp, {c, m, n, alpha, beta}, tiles);
    }
    ptxlab::tcgen05_fence_before();
    __syncthreads();
    ptxlab::tcgen05_fence_after();
    if (warp == MULTIPLIER) ptxlab::tcgen05_dealloc<2 * BN, 1>(tensor);
}
