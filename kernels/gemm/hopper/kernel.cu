// hopper: persistent clusters, and C by TMA. C = activation(alpha A x B + beta C + bias), C row-major.
//
// Idea: what the rungs below do, without their gaps. A producer fills a ring of stages, for this block and
// for its neighbours in the cluster, tile after tile. Two consumers multiply; the sums of a tile go through
// shared memory, a panel of 16 rows at a time for each warp, and TMA writes them while the warp goes on with
// the next panel, and then with the next tile. Either the consumers share a tile, each has some of its rows
// (cooperative), or have tiles of their own and take turns with the tensor cores, so that one multiplies
// while the other writes (PINGPONG); a tile of both needs less of shared memory, tiles of their own hide all
// of the writing. For small problems a block has one consumer, in half of an SM (single: OF_AN_SM 2), so that
// a block of the next kernel is there before this one ends, or in all of it (alone), so that twice as much is
// on its way from memory.
//
// Where tiles are few, k is split: a tile's parts pass through memory, or they are the blocks of one cluster,
// each of which adds up some of the rows (CLUSTER_K), or all that is left beside whole waves is dealt out in
// even shares (DEAL stream). Where C has few rows, B x A is computed instead, and written transposed
// (SWAPPED): wgmma has 64 rows for the columns of C, and as many columns as C has rows. Such tiles, and parts
// in clusters, leave by an image of the sums in place of the stages; a block then has one tile, and ends with
// it (IMAGE).
//
// The kernel ahead of this one may still run while blocks start here: they set up their barriers, then wait
// for it to end before they touch its memory (DEPENDENT).
//
// What must hold, and where it is seen to:
//   a stage is overwritten when all that it was copied for have read it: Ring, ClusterPlace::release
//   the parity of each phase goes on from tile to tile: Turn
//   all blocks of a cluster have the same number of tiles: Schedule, which counts in clusters
//   parts are added in an order that does not depend on who comes last: Partials; SumsImage
//   sums do not overwrite stages that are still read: consume(), where all consumers meet before
//   no block ends while others may still arrive at its barriers: Ring::drain at the end of produce()
//   nor while others read its sums: Cluster::wait at the end
//   what lanes wrote to shared memory is seen by TMA: PanelStore, fence_proxy_async
//   a panel is overwritten when TMA has read it, and none is left unread at the end: PanelStore, tma_wait
//
// What limits it: power. In the loop over k the tensor cores are busy 97 to 99 % of the cycles (clock64
// inside the kernel), and with consumers that take turns nearly so from tile to tile; but at 8192^3 the clock
// is held down to 1.36 to 1.52 of 1.98 GHz. By ncu it takes no more cycles than torch's kernel from 4096^3
// up, at a clock that is 2 to 3 % lower. Small problems are limited by the start and the end of a kernel,
// skinny ones by memory, and how much of it is on its way. FINDINGS.md has what was tried.
//
// Measured (H200, 2026-11-30; bf16 tn, normal values, cold, all rungs in turn in one run): at 2048^3, 4096^3
// and 8192^3 707, 756 and 803 TFLOP/s; 100, 97 and 100 % of the faster library; 77, 84 and 88 % of the
// ceiling of wgmma; over cluster +3.6, -0.5 (noise) and +3.4 %. With f16 at 4096^3 and 8192^3 724 and 760
// TFLOP/s; 97 and 100 % of the faster library; 82 and 86 % of the ceiling of wgmma; over cluster -0.2 (noise)
// and +3.1 %.
//
// Macros: TYPE (half, __nv_bfloat16, ptxlab::Tf32, __nv_fp8_e4m3, __nv_fp8_e5m2, ptxlab::S8), OUT (half,
// __nv_bfloat16, float, and of integers int), A_K and B_K (1: the operand is contiguous in k, 0: in m or n),
// BM BN (a tile), CONSUMERS, PINGPONG, OF_AN_SM (blocks that an SM has room for), CLUSTER_M CLUSTER_N (tiles
// of a cluster, down and across), STAGES, BUFFERS (panels of a warp), PANEL_LINE (bytes of a row of them),
// GROUP (in clusters), DEAL (whole, split, stream), SPLITS (parts of k that pass through memory), CLUSTER_K
// (those of a cluster), SWAPPED (A and B, M and N are then those of C transposed), IMAGE, SCALED (0: alpha is
// 1 and beta 0), BIAS (1: there is one), ACTIVATION (none, relu, gelu), EVICT_A EVICT_B EVICT_C (normal,
// first, last: when lines leave the L2), DEPENDENT, PRODUCER_REGISTERS, CONSUMER_REGISTERS, KERNEL.

#include <ptxlab/elect.cuh>
#include <ptxlab/gemm_baton.cuh>
#include <ptxlab/gemm_cluster.cuh>
#include <ptxlab/gemm_edges.cuh>
#include <ptxlab/gemm_image.cuh>
#include <ptxlab/gemm_multiply.cuh>
#include <ptxlab/gemm_operand.cuh>
#include <ptxlab/gemm_partials.cuh>
#include <ptxlab/gemm_ring.cuh>
#include <ptxlab/gemm_schedule.cuh>
#include <ptxlab/gemm_store.cuh>
#include <ptxlab/griddepcontrol.cuh>
#include <ptxlab/setmaxnreg.cuh>

namespace {

constexpr int BK = ptxlab::TILE_DEPTH<TYPE>;
constexpr int SHARING = PINGPONG ? 1 : CONSUMERS;  // consumers that multiply one tile together
constexpr int PARTS_M = BM / SHARING / 64, PARTS_N = (BN + 255) / 256;  // instructions of a consumer's part
constexpr int N = BN / PARTS_N;
using Sums = unsigned[PARTS_M][PARTS_N][N / 2];
constexpr int BYTES_A = BM * ptxlab::LINE, BYTES_B = BN * ptxlab::LINE, STAGE = BYTES_A + BYTES_B;
using ShareOfA = ptxlab::OperandTile<BM / CLUSTER_N, A_K>;  // what a block copies of a tile
using ShareOfB = ptxlab::OperandTile<BN / CLUSTER_M, B_K>;
using Cluster = ptxlab::ClusterPlace<CLUSTER_M, CLUSTER_N, CLUSTER_K>;
using Ring = ptxlab::Ring<STAGES>;
using Turn = ptxlab::Turn<STAGES>;
using Passing = typename ptxlab::Passing<OUT>::Type;
using Store = ptxlab::PanelStore<Passing, SCALED, BUFFERS, BIAS, ptxlab::Activation::ACTIVATION,
                                 ptxlab::Evict::EVICT_C, PANEL_LINE>;
using PolicyOfA = ptxlab::CachePolicy<ptxlab::Evict::EVICT_A>;
using PolicyOfB = ptxlab::CachePolicy<ptxlab::Evict::EVICT_B>;
constexpr ptxlab::Deal DEALT = ptxlab::Deal::DEAL;
using Tiles = ptxlab::Schedule<Cluster, DEALT, SPLITS, BM, BN, BK, GROUP>;
using ptxlab::Work;
using Partials = ptxlab::Partials<TYPE, 4 * SHARING, PARTS_M * PARTS_N * N / 8>;
using Image = ptxlab::SumsImage<TYPE, Cluster, SWAPPED ? BN : BM, SWAPPED ? BM : BN, SWAPPED>;
using ptxlab::Baton;
using ptxlab::TensorMap;

// One thread fills stage after stage, for this block and its neighbours in the cluster.
__device__ __forceinline__ void produce(const TensorMap& a, const TensorMap& b, const Ring& ring,
                                        unsigned shared, Tiles tiles)
{
    Turn turn;
    const Cluster& place = tiles.place;
    const unsigned part_a = place.col * ShareOfA::BYTES, part_b = BYTES_A + place.row * ShareOfB::BYTES;
    Work work;
    while (tiles.next(work)) {
        const int row = work.row + place.col * (BM / CLUSTER_N);
        const int col = work.col + place.row * (BN / CLUSTER_M);
#pragma unroll 1
        for (int step = work.begin; step < work.end; ++step, turn.advance()) {
            const unsigned stage = shared + turn.stage * STAGE, full = ring.full(turn.stage);
            ring.wait_empty(turn);
            ptxlab::mbarrier_arrive_expect_tx(full, STAGE);  // some from neighbours, some from outside
            if constexpr (CLUSTER_N == 1) ShareOfA::load(stage, a, row, step * BK, full, PolicyOfA());
            else ShareOfA::multicast(stage + part_a, a, row, step * BK, full, place.row_mask(), PolicyOfA());
            const unsigned to_b = stage + BYTES_A;
            if constexpr (CLUSTER_M == 1) ShareOfB::load(to_b, b, col, step * BK, full, PolicyOfB());
            else ShareOfB::multicast(stage + part_b, b, col, step * BK, full, place.col_mask(), PolicyOfB());
        }
    }
    if constexpr (Cluster::TILES > 1) ring.drain(turn);  // neighbours arrive at these barriers
}

// A warpgroup multiplies its rows of all stages of a tile.
__device__ __forceinline__ void multiply(Sums& sums, const Ring& ring, Turn& turn, const Cluster& place,
                                         unsigned shared, int first_row, int steps, Baton& baton)
{
    const unsigned a = shared + first_row * ptxlab::LINE, b = shared + BYTES_A;
    if constexpr (PINGPONG) baton.take();
    const int last = ptxlab::start_products<TYPE, STAGE, A_K, B_K>(sums, ring, turn, place, a, b, steps);
    if constexpr (PINGPONG) baton.hand_over();
    ptxlab::end_products(ring, place, last);
}

#if !IMAGE
// A warpgroup multiplies tile after tile, or its rows of them, and has TMA write the sums.
__device__ __forceinline__ void consume(OUT*, const TensorMap& c, Store store, const Partials& partials,
                                        const Ring& ring, unsigned shared, Tiles tiles, int warp, Baton baton)
{
    const int first_row = PINGPONG ? 0 : warp / 4 * PARTS_M * 64;  // of this warpgroup, in the tile
    Turn turn;
    if (PINGPONG && warp / 4 == 1) turn.advance(tiles.skip());  // the first tile is the other's
    Work work;
    while (tiles.next(work)) {
        store.epilogue.template prefetch<BN>(work.col);
        Sums sums;
        multiply(sums, ring, turn, tiles.place, shared, first_row, work.end - work.begin, baton);
        const int row = work.row + first_row + warp % 4 * 16;
        bool complete = row < store.epilogue.m;
        if constexpr (DEALT != ptxlab::Deal::whole)
            complete = complete && (work.parts == 1 || partials.reduce(sums, work, warp % (4 * SHARING)));
        if (complete) {
            ptxlab::convert_sums<TYPE, OUT>(sums);
#pragma unroll
            for (int i = 0; i < PARTS_M; ++i)
                store.template store<N, PARTS_N>(c, sums[i], row + 64 * i, work.col);
        }
        if constexpr (PINGPONG) turn.advance(tiles.skip());
    }
    Store::finish();
}

#else
// The same for a block that has one tile, or one part of one: the image of its sums takes the place of the
// stages.
__device__ __forceinline__ void consume(OUT* c, const TensorMap&, const Store& store, const Partials&,
                                        const Ring& ring, unsigned shared, Tiles tiles, int warp, Baton baton)
{
    constexpr int THREADS = 128 * CONSUMERS;
    const int first_row = warp / 4 * PARTS_M * 64;
    Turn turn;
    Work work;
    tiles.next(work);
    const int row = SWAPPED ? work.col : work.row, col = SWAPPED ? work.row : work.col;  // of C
    const Image image{tiles.place, shared};
    store.epilogue.template prefetch<SWAPPED ? BM : BN>(col);
    Sums sums;
    multiply(sums, ring, turn, tiles.place, shared, first_row, work.end - work.begin, baton);
    ptxlab::meet_of(THREADS);  // every stage has been read
#pragma unroll
    for (int i = 0; i < PARTS_M; ++i)
        image.template lay<N, PARTS_N>(sums[i], first_row + 64 * i + warp % 4 * 16, 0);
    if constexpr (CLUSTER_K > 1) Cluster::hand_over();
    else ptxlab::meet_of(THREADS);
    auto share = image.template fetch<THREADS, Passing>(store.epilogue.m - row, threadIdx.x - 128);
    if constexpr (CLUSTER_K > 1) Cluster::arrive();  // the images of the others have been read
    Image::write<OUT>(reinterpret_cast<Passing*>(c), share, store.epilogue, row, col);
}
#endif

}  // namespace

extern "C" __global__ void __launch_bounds__(128 * (1 + CONSUMERS), OF_AN_SM)
KERNEL(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
       const __grid_constant__ TensorMap c_map, OUT* c, int m, int n, int k, float alpha, float beta,
       const OUT* bias, uint4* partial_sums, unsigned* arrived)
{
    extern __shared__ __align__(1024) unsigned char memory[];  // the swizzle is one of absolute addresses
    const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(memory));
    const unsigned staging = shared + STAGES * STAGE;
    const Ring ring(staging + (IMAGE ? 0 : 4 * CONSUMERS * Store::BYTES));
    const unsigned batons = ring.barriers + Ring::BYTES;
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // alike in the warp, and known to be
    const Tiles tiles(SWAPPED ? n : m, SWAPPED ? m : n, k);

    if (threadIdx.x == 0) {
        Baton::init(batons);
        ring.init(4 * SHARING * Cluster::NEIGHBOURS);
        ptxlab::prefetch_map(a);
        ptxlab::prefetch_map(b);
        ptxlab::prefetch_map(c_map);
    }
    if constexpr (Cluster::TILES == 1) __syncthreads();  // before anyone arrives at a barrier
    else Cluster::meet();  // or at a neighbour's, or copies into it
    if constexpr (DEPENDENT) {
        ptxlab::launch_dependents();
        ptxlab::grid_dependency_wait();
    }

    if (warp < 4) {
        if constexpr (CONSUMERS > 1) ptxlab::setmaxnreg_dec<PRODUCER_REGISTERS>();
        unsigned leader;
        if (warp == 0 && ptxlab::elect(~0u, leader))
            produce(SWAPPED ? b : a, SWAPPED ? a : b, ring, shared, tiles);
        if constexpr (CLUSTER_K > 1) Cluster::hand_over();  // with the consumers of all blocks
        if constexpr (CLUSTER_K > 1) Cluster::arrive();
    } else {
        if constexpr (CONSUMERS > 1) ptxlab::setmaxnreg_inc<CONSUMER_REGISTERS>();
        const Store store{staging + (warp - 4) * Store::BYTES,
                          {reinterpret_cast<const Passing*>(c), m, n, alpha, beta,
                           reinterpret_cast<const Passing*>(bias)}};
        const Partials partials{partial_sums, arrived, tiles.most_parts()};
        consume(c, c_map, store, partials, ring, shared, tiles, warp - 4, Baton(batons, warp / 4 - 1));
    }
    if constexpr (CLUSTER_K > 1) Cluster::wait();  // others may still read sums
}
