// hopper-fp8: 8-bit floats, and where their sums are kept. C = activation(alpha A x B + beta C + bias), C
// row-major.
//
// Idea: the tensor cores sum 8-bit floats with 14 bits, where float32 has 24: each of 32
// products, and what has been summed so far, loses what lies 13 bits below the largest of them. Over a long
// k that adds up. PROMOTED leaves only 128 products of k, one stage of the ring, to the tensor cores; the
// consumers add what these make of each stage to sums of their own, in float32.
//
// What that costs: a thread holds sums and parts of sums, so tiles are smaller; and the tensor cores would
// idle while a consumer adds. So an SM has two consumers, and one multiplies while the other adds or waits:
// they share a tile, or know nothing of each other, each in a block of its own with a ring of its own
// (CONSUMERS 1), where one may also multiply while the other writes. Otherwise this is hopper: clusters, a
// ring of stages, C by TMA, and without promotion consumers that share a tile or have tiles of their own
// (PINGPONG). 8-bit elements lie along k in both operands, since wgmma transposes none but those of 16 bits.
//
// Tried with promotion (H200, 2026-11-30, cold, times cuBLASLt without fast accumulation in the same run, at
// 4096^3 and 8192^3): one consumer in a block, 128x128: 1.01 and 0.92, in pairs that share what they copy
// 0.97 and 0.93: they then wait for each other, and copy less. Two that share 128x192: 0.93, as the last
// wave is a third full, and 1.00; 128x256, whose sums leave room for parts of half its width, so that A is
// read twice: 1.00 and 0.93. Two that hand the turn to multiply to each other, stage by stage, are 5 to 7 %
// slower than without turns (hot): to wait for the turn takes longer than what it saves.
//
// Tried without (the same, against fast accumulation): consumers with tiles of their own, 128x128: 1.02 and
// 1.04, 128x192: 0.88 and 1.04; one in a block: 0.92 and 0.96; two that share 128x256 (hot): 0.92 and 0.99.
//
// Measured (H200, 2026-11-30; e4m3 tn, normal values, cold, in turn with the libraries): at 4096^3 and 8192^3
// 1347 and 1396 TFLOP/s; 101 and 105 % of the faster library; 94 and 99 % of the ceiling of wgmma; promoted
// at 4096^3 and 8192^3 1172 and 1281 TFLOP/s; 101 and 100 % of the faster library; 83 and 93 % of the ceiling
// of wgmma.
//
// Macros: TYPE (__nv_fp8_e4m3, __nv_fp8_e5m2), OUT (half, __nv_bfloat16, float), BM BN (a tile), PARTS
// (instructions beside each other that cover its columns), PROMOTED, CONSUMERS, PINGPONG, CLUSTER_M
// CLUSTER_N (tiles of a cluster, down and across), STAGES, BUFFERS (panels of a warp), GROUP (in clusters),
// SCALED (0: alpha is 1 and beta 0), BIAS (1: there is one), ACTIVATION (none, relu, gelu),
// PRODUCER_REGISTERS, CONSUMER_REGISTERS, KERNEL.

#include <ptxlab/elect.cuh>
#include <ptxlab/gemm_baton.cuh>
#include <ptxlab/gemm_cluster.cuh>
#include <ptxlab/gemm_multiply.cuh>
#include <ptxlab/gemm_operand.cuh>
#include <ptxlab/gemm_schedule.cuh>
#include <ptxlab/gemm_store.cuh>
#include <ptxlab/griddepcontrol.cuh>
#include <ptxlab/setmaxnreg.cuh>

namespace {

constexpr int BK = ptxlab::TILE_DEPTH<TYPE>;
constexpr int SHARING = PINGPONG ? 1 : CONSUMERS;  // consumers that multiply one tile together
constexpr int HIGH = BM / SHARING / 64;  // instructions of 64 rows, one below the other, of a consumer
constexpr int N = BN / PARTS;
constexpr int BYTES_A = BM * ptxlab::LINE, STAGE = BYTES_A + BN * ptxlab::LINE;
using ShareOfA = ptxlab::OperandTile<BM / CLUSTER_N, true>;  // what a block copies of a tile
using ShareOfB = ptxlab::OperandTile<BN / CLUSTER_M, true>;
using Cluster = ptxlab::ClusterPlace<CLUSTER_M, CLUSTER_N>;
using Ring = ptxlab::Ring<STAGES>;
using Turn = ptxlab::Turn<STAGES>;
using Store = ptxlab::PanelStore<OUT, SCALED, BUFFERS, BIAS, ptxlab::Activation::ACTIVATION>;
using Sums = unsigned[HIGH][PARTS][N / 2];
using Tiles = ptxlab::Schedule<Cluster, ptxlab::Deal::whole, 1, BM, BN, BK, GROUP>;
using ptxlab::Baton;
using ptxlab::TensorMap;
using ptxlab::Work;

// One thread fills stage after stage, for this block and its neighbours in the cluster.
__device__ __forceinline__ void produce(const TensorMap& a, const TensorMap& b, const Ring& ring,
                                        unsigned shared, Tiles tiles)
{
    Turn turn;
    const unsigned part_a = tiles.place.col * ShareOfA::BYTES;
    const unsigned part_b = BYTES_A + tiles.place.row * ShareOfB::BYTES;
    Work work;
    while (tiles.next(work)) {
        const int row = work.row + tiles.place.col * (BM / CLUSTER_N);
        const int col = work.col + tiles.place.row * (BN / CLUSTER_M);
#pragma unroll 1
        for (int step = 0; step < tiles.steps; ++step, turn.advance()) {
            const unsigned stage = shared + turn.stage * STAGE, full = ring.full(turn.stage);
            ring.wait_empty(turn);
            ptxlab::mbarrier_arrive_expect_tx(full, STAGE);  // from neighbours too, and zeros from outside
            if constexpr (CLUSTER_N == 1) ShareOfA::load(stage, a, row, step * BK, full);
            else ShareOfA::multicast(stage + part_a, a, row, step * BK, full, tiles.place.row_mask());
            if constexpr (CLUSTER_M == 1) ShareOfB::load(stage + BYTES_A, b, col, step * BK, full);
            else ShareOfB::multicast(stage + part_b, b, col, step * BK, full, tiles.place.col_mask());
        }
    }
    if constexpr (Cluster::TILES > 1) ring.drain(turn);  // neighbours arrive at these barriers
}

// A warpgroup multiplies its rows of all stages of a tile, and leaves the sums to the tensor cores.
__device__ __forceinline__ void multiply(Sums& sums, const Ring& ring, Turn& turn, const Cluster& place,
                                         unsigned shared, int first_row, int steps, Baton& baton)
{
    const unsigned a = shared + first_row * ptxlab::LINE, b = shared + BYTES_A;
    if constexpr (PINGPONG) baton.take();
    const int last = ptxlab::start_products<TYPE, STAGE, true, true>(sums, ring, turn, place, a, b, steps);
    if constexpr (PINGPONG) baton.hand_over();
    ptxlab::end_products(ring, place, last);
}

// The same, but adds the products of each stage to sums of its own.
__device__ __forceinline__ void multiply_and_add(Sums& sums, const Ring& ring, Turn& turn,
                                                 const Cluster& place, unsigned shared, int first_row,
                                                 int steps)
{
    constexpr int PRODUCTS = HIGH * PARTS, OWN = N / 2;
    unsigned(&of)[PRODUCTS][OWN] = reinterpret_cast<unsigned(&)[PRODUCTS][OWN]>(sums);
#pragma unroll
    for (int i = 0; i < PRODUCTS * OWN; ++i) of[i / OWN][i % OWN] = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const unsigned a = shared + turn.stage * STAGE + first_row * ptxlab::LINE;
        const unsigned b = shared + turn.stage * STAGE + BYTES_A;
        ring.wait_full(turn);
#pragma unroll
        for (int i = 0; i < PRODUCTS; ++i) {
            unsigned part[1][1][OWN];
            ptxlab::wgmma_fence();
            ptxlab::multiply_tile<TYPE, N, 1, 1, true, true>(part, a + i / PARTS * ptxlab::BYTES_OF_64_ROWS,
                                                             b + i % PARTS * N * ptxlab::LINE, false);
            ptxlab::wgmma_commit();
            ptxlab::wgmma_wait<0>();
            if (i == PRODUCTS - 1) place.release(ring.empty(turn.stage), threadIdx.x % 32);
#pragma unroll
            for (int j = 0; j < OWN; ++j) of[i][j] = ptxlab::added<TYPE>(of[i][j], part[0][0][j]);
        }
        turn.advance();
    }
}

__device__ __forceinline__ void consume(const TensorMap& c, Store store, const Ring& ring, unsigned shared,
                                        Tiles tiles, int warp, Baton baton)
{
    const int first_row = PINGPONG ? 0 : warp / 4 * HIGH * 64;  // of this warpgroup, in the tile
    const int steps = tiles.steps;
    Turn turn;
    if (PINGPONG && warp / 4 == 1) turn.advance(tiles.skip());  // the first tile is the other's
    Work work;
    while (tiles.next(work)) {
        store.epilogue.template prefetch<BN>(work.col);
        Sums sums;
        if constexpr (PROMOTED) multiply_and_add(sums, ring, turn, tiles.place, shared, first_row, steps);
        else multiply(sums, ring, turn, tiles.place, shared, first_row, steps, baton);
        const int row = work.row + first_row + warp % 4 * 16;
        if (row < store.epilogue.m) {  // without it ptxas lets gelu into the products' pipeline (C7514)
#pragma unroll
            for (int i = 0; i < HIGH; ++i)
                store.template store<N, PARTS>(c, sums[i], row + 64 * i, work.col);
        }
        if constexpr (PINGPONG) turn.advance(tiles.skip());
    }
    Store::finish();
}

}  // namespace

extern "C" __global__ void __launch_bounds__(128 * (1 + CONSUMERS), CONSUMERS == 1 ? 2 : 1)
KERNEL(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
       const __grid_constant__ TensorMap c_map, const OUT* c, int m, int n, int k, float alpha, float beta,
       const OUT* bias)
{
    extern __shared__ __align__(1024) unsigned char memory[];  // the swizzle is one of absolute addresses
    const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(memory));
    const unsigned staging = shared + STAGES * STAGE;
    const Ring ring(staging + 4 * CONSUMERS * Store::BYTES);
    const unsigned batons = ring.barriers + Ring::BYTES;
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // alike in the warp, and known to be
    const Tiles tiles(m, n, k);

    if (threadIdx.x == 0) {
        Baton::init(batons);
        ring.init(4 * SHARING * Cluster::NEIGHBOURS);
        ptxlab::prefetch_map(a);
        ptxlab::prefetch_map(b);
        ptxlab::prefetch_map(c_map);
    }
    Cluster::meet();  // before anyone arrives at a barrier, or copies into a neighbour
    ptxlab::launch_dependents();
    ptxlab::grid_dependency_wait();

    if (warp < 4) {
        ptxlab::setmaxnreg_dec<PRODUCER_REGISTERS>();
        unsigned leader;
        if (warp == 0 && ptxlab::elect(~0u, leader)) produce(a, b, ring, shared, tiles);
    } else {
        ptxlab::setmaxnreg_inc<CONSUMER_REGISTERS>();
        const Store store{staging + (warp - 4) * Store::BYTES, {c, m, n, alpha, beta, bias}};
        consume(c_map, store, ring, shared, tiles, warp - 4, Baton(batons, warp / 4 - 1));
    }
}
