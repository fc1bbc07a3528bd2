// persistent: warp-specialized blocks that stay, and take one tile of C after the other. C = alpha A x B +
// beta C, C row-major.
//
// Idea: there are as many blocks as SMs. While the consumers write the sums of a tile, the producer is
// already filling the stages with the next one, and no block has to start. The ring does not know of tiles:
// its turns go on from one to the next. And the consumers do not wait until C is written: a warp lays a panel
// of its sums into shared memory, TMA writes it, and the warp goes on (gemm_store.cuh). Which tile comes next
// is a choice:
//   SCHEDULE 0  static: the tiles gridDim.x apart, which both sides count for themselves,
//   SCHEDULE 1  counter: the producer draws a number, and hands it to the consumers through a queue; SMs that
//               are faster get more tiles,
// and where the tile of that number lies is ORDER: 0 row by row, 1 groups of GROUP tile rows, 2 the same
// there and back, 3 from a list that the host made.
//
// What limits it: both consumers end a tile at the same time, and while they lay its sums into panels the
// tensor cores wait; and each of 132 blocks asks the L2 for its own tiles, although neighbours need the same
// ones.
//
// Measured (H200, 2026-11-30; bf16 tn, normal values, cold, all rungs in turn in one run): at 2048^3, 4096^3
// and 8192^3 680, 746 and 763 TFLOP/s; 96, 99 and 98 % of the faster library; 74, 83 and 84 % of the ceiling
// of wgmma; over warp-specialized +23.6, +14.2 and +6.5 %. With f16 at 2048^3, 4096^3 and 8192^3 653, 728 and
// 731 TFLOP/s; 96, 100 and 97 % of the faster library; 74, 82 and 83 % of the ceiling of wgmma; over
// warp-specialized +22.8, +13.3 and +6.3 %.
//
// The longer k, the less there is to gain at the ends of tiles. Most of it comes from the way out of C: the
// same kernel that wrote C from registers had a ninth less at 4096^3. Which tile comes next changes nothing
// there: the eight ways beside each other (the same card; bf16, cold) reached 673 to 703 TFLOP/s, the counter
// along the Hilbert curve most and static in groups least, but for each cycle all did the same within 0.8 %:
// the clock moved.
//
// What the next rung changes (cluster): two blocks share the tile of B, which one copy brings to both.
//
// Macros: TYPE (half, __nv_bfloat16), OUT (half, __nv_bfloat16, float), A_K and B_K (1: the operand is
// contiguous in k, 0: in m or n), BM BN (the block's tile, 64 rows a consumer), STAGES, BUFFERS (panels of a
// warp), SCALED (0: alpha is 1 and beta 0), SCHEDULE, ORDER, GROUP, PRODUCER_REGISTERS, CONSUMER_REGISTERS,
// KERNEL.

#include <ptxlab/elect.cuh>
#include <ptxlab/gemm_edges.cuh>
#include <ptxlab/gemm_operand.cuh>
#include <ptxlab/gemm_order.cuh>
#include <ptxlab/gemm_ring.cuh>
#include <ptxlab/gemm_store.cuh>
#include <ptxlab/setmaxnreg.cuh>

namespace {

constexpr int BK = ptxlab::TILE_DEPTH<TYPE>;
constexpr int CONSUMERS = BM / 64;  // warpgroups; the producer comes first
constexpr int CONSUMING_WARPS = 4 * CONSUMERS;
using TileA = ptxlab::OperandTile<BM, A_K>;
using TileB = ptxlab::OperandTile<BN, B_K>;
constexpr int STAGE = TileA::BYTES + TileB::BYTES;
using Ring = ptxlab::Ring<STAGES>;
using Turn = ptxlab::Turn<STAGES>;
using Store = ptxlab::PanelStore<OUT, SCALED, BUFFERS>;
using ptxlab::TensorMap;

constexpr int QUEUE = 2;  // numbers of tiles on their way from the producer to the consumers
using Queue = ptxlab::Ring<QUEUE>;

// What both sides know of the tiles, and how either learns which one is next.
struct Tiles {
    int down, across;
    const int* listed;   // ORDER 3: row and column of each tile
    unsigned* counter;   // SCHEDULE 1: tiles that were drawn, blocks that have drawn their last
    Queue queue;         // SCHEDULE 1
    unsigned numbers;    // what is queued: a number for each place

    __device__ __forceinline__ ptxlab::TileAt at(int index) const
    {
        if constexpr (ORDER == 0) return {index / across, index % across};
        if constexpr (ORDER == 1) return ptxlab::grouped<GROUP>(index, down, across);
        if constexpr (ORDER == 2) return ptxlab::serpentine<GROUP>(index, down, across);
        if constexpr (ORDER == 3) return {listed[2 * index], listed[2 * index + 1]};
    }
};

// The producer's side. Its first tile is that of the block's own number.
struct Draw {
    ptxlab::Turn<QUEUE> turn;
    unsigned drawn = blockIdx.x;

    // The number of the next tile, which the consumers get too; beyond the last tile there is none.
    __device__ __forceinline__ int next(const Tiles& tiles)
    {
        const unsigned index = drawn;
        if constexpr (SCHEDULE == 0) {
            drawn += gridDim.x;
        } else {
            tiles.queue.wait_empty(turn);
            const unsigned place = tiles.numbers + 4 * turn.stage;
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(place), "r"(index) : "memory");
            ptxlab::mbarrier_arrive(tiles.queue.full(turn.stage));
            turn.advance();
            drawn = gridDim.x + atomicAdd(&tiles.counter[0], 1u);  // comes while this tile is copied
        }
        return index;
    }

    // The last block to end leaves the counters as the next launch wants them.
    __device__ __forceinline__ void finish(const Tiles& tiles)
    {
        if constexpr (SCHEDULE == 1) {
            __threadfence();
            if (atomicAdd(&tiles.counter[1], 1u) == gridDim.x - 1) tiles.counter[0] = tiles.counter[1] = 0;
        }
    }
};

// The consumers' side.
struct Take {
    ptxlab::Turn<QUEUE> turn;
    unsigned counted = blockIdx.x;

    __device__ __forceinline__ int next(const Tiles& tiles)
    {
        unsigned index = counted;
        if constexpr (SCHEDULE == 0) {
            counted += gridDim.x;
        } else {
            tiles.queue.wait_full(turn);
            const unsigned place = tiles.numbers + 4 * turn.stage;
            asm volatile("ld.shared.u32 %0, [%1];" : "=r"(index) : "r"(place) : "memory");
            __syncwarp();  // all lanes have it
            if (threadIdx.x % 32 == 0) ptxlab::mbarrier_arrive(tiles.queue.empty(turn.stage));
            turn.advance();
        }
        return __shfl_sync(~0u, index, 0);  // alike in the warp, and known to be
    }
};

// One thread fills stage after stage, tile after tile.
__device__ __forceinline__ void produce(const TensorMap& a, const TensorMap& b, const Ring& ring,
                                        unsigned shared, const Tiles& tiles, int steps)
{
    Turn turn;
    Draw draw;
    for (int index = draw.next(tiles); index < tiles.down * tiles.across; index = draw.next(tiles)) {
        const ptxlab::TileAt at = tiles.at(index);
#pragma unroll 1
        for (int step = 0; step < steps; ++step, turn.advance()) {
            const unsigned stage = shared + turn.stage * STAGE, full = ring.full(turn.stage);
            ring.wait_empty(turn);
            ptxlab::mbarrier_arrive_expect_tx(full, STAGE);  // bytes outside of the matrix count too
            TileA::load(stage, a, at.row * BM, step * BK, full);
            TileB::load(stage + TileA::BYTES, b, at.col * BN, step * BK, full);
        }
    }
    draw.finish(tiles);
}

// A warpgroup multiplies its 64 rows of all stages of a tile.
__device__ __forceinline__ void multiply(unsigned (&sums)[1][1][BN / 2], const Ring& ring, Turn& turn,
                                         unsigned shared, int consumer, int steps)
{
    const bool speaks = threadIdx.x % 32 == 0;  // for its warp
    int read = 0;                               // the stage of the step before
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const unsigned stage = shared + turn.stage * STAGE;
        ring.wait_full(turn);
        ptxlab::wgmma_fence();
        ptxlab::multiply_tile<TYPE, BN, 1, 1, A_K, B_K>(sums, stage + consumer * ptxlab::BYTES_OF_64_ROWS,
                                                        stage + TileA::BYTES, step > 0);
        ptxlab::wgmma_commit();
        ptxlab::wgmma_wait<1>();  // the products of the step before are done
        if (step > 0 && speaks) ptxlab::mbarrier_arrive(ring.empty(read));
        read = turn.stage;
        turn.advance();
    }
    ptxlab::wgmma_wait<0>();
    if (speaks) ptxlab::mbarrier_arrive(ring.empty(read));  // the next tile needs the stage
}

}  // namespace

extern "C" __global__ void __launch_bounds__(128 * (1 + CONSUMERS), 1)
KERNEL(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
       const __grid_constant__ TensorMap to, const OUT* c, int m, int n, int k, float alpha, float beta,
       const int* listed, unsigned* counter)
{
    extern __shared__ __align__(1024) unsigned char memory[];  // the swizzle is one of absolute addresses
    const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(memory));
    const unsigned panels = shared + STAGES * STAGE;
    const Ring ring(panels + CONSUMING_WARPS * Store::BYTES);
    const Queue queue(ring.barriers + Ring::BYTES);
    const unsigned numbers = queue.barriers + Queue::BYTES;
    const Tiles tiles{(m - 1) / BM + 1, (n - 1) / BN + 1, listed, counter, queue, numbers};
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // alike in the warp, and known to be
    const int steps = (k - 1) / BK + 1;

    if (threadIdx.x == 0) {
        ring.init(CONSUMING_WARPS);
        queue.init(CONSUMING_WARPS);
    }
    __syncthreads();

    if (warp < 4) {
        ptxlab::setmaxnreg_dec<PRODUCER_REGISTERS>();
        unsigned leader;
        if (warp == 0 && ptxlab::elect(~0u, leader)) produce(a, b, ring, shared, tiles, steps);
    } else {
        ptxlab::setmaxnreg_inc<CONSUMER_REGISTERS>();
        Store store{panels + (warp - 4) * Store::BYTES, {c, m, n, alpha, beta}};
        Turn turn;
        Take take;
        for (int index = take.next(tiles); index < tiles.down * tiles.across; index = take.next(tiles)) {
            unsigned sums[1][1][BN / 2];
            multiply(sums, ring, turn, shared, warp / 4 - 1, steps);
            const ptxlab::TileAt at = tiles.at(index);
            store.template store<BN, 1>(to, sums[0], at.row * BM + (warp - 4) * 16, at.col * BN);
        }
        Store::finish();
    }
}
