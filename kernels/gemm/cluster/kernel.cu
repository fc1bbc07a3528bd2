// cluster: persistent blocks in pairs that share what they copy. C = alpha A x B + beta C, C row-major.
//
// Idea: the two blocks of a cluster compute tiles below or beside each other, which need the same tile of B,
// or of A. Each copies half of it, and the other gets that half too: one read of the L2 serves two SMs. A
// stage is empty when the consumers of both blocks have read it, since either producer has it written in
// both; and "full" counts all bytes that land, whoever asked for them. The blocks of a cluster always have
// the same number of tiles: one that lies outside of C brings zeros and is not written. How a half gets to
// the other is SHARE:
//   0 multicast  TMA writes it into both blocks at once,
//   1 dsmem      TMA writes it into the block that asked; when it has landed, a second thread sends it on,
//                from shared memory to shared memory, where it counts at the other's barrier.
//
// What limits it: while the consumers lay sums into panels the tensor cores wait, as in persistent; and the
// pair is as slow as the slower of the two. The L2 of an H200 brings what single blocks ask for; the pair
// halves that, and pays with waiting for each other. For each cycle it does what persistent does, within 1
// percent. It is here because that must be known, for cards with less L2 bandwidth, and for the clusters of
// the next rung. Clusters of four leave SMs empty: 30 of 33 run at once.
//
// Measured (H200, 2026-11-30; bf16 tn, normal values, cold, all rungs in turn in one run): at 2048^3, 4096^3
// and 8192^3 680, 747 and 748 TFLOP/s; 97, 100 and 96 % of the faster library; 74, 83 and 82 % of the ceiling
// of wgmma; over persistent +0.6 (noise), +0.5 (noise) and -0.1 (noise) %. With f16 at 2048^3, 4096^3 and
// 8192^3 647, 726 and 727 TFLOP/s; 96, 99 and 96 % of the faster library; 73, 82 and 82 % of the ceiling of
// wgmma; over persistent -1.8 (noise), +0.0 (noise) and -0.0 (noise) %.
//
// The two ways beside each other (the same card and day; bf16 tn, normal values, cold): in pairs down, where
// a block sends 16 KB on in each step, dsmem reaches 0.74 of what multicast does at 4096^3 and 8192^3: 11
// bytes a cycle go that way. In pairs across 8 KB are sent on, and it is 0.98 at 4096^3. Multicast costs no
// second way at all.
//
// What the next rung changes (hopper): consumers with tiles of their own take turns, one multiplies while the
// other writes; tiles fit the problem; and the next kernel starts while this one ends.
//
// Macros: TYPE (half, __nv_bfloat16), OUT (half, __nv_bfloat16, float), A_K and B_K (1: the operand is
// contiguous in k, 0: in m or n), BM BN (the block's tile, 64 rows a consumer), CLUSTER_M CLUSTER_N (tiles of
// a cluster, down and across), SHARE, STAGES, BUFFERS (panels of a warp), SCALED (0: alpha is 1 and beta 0),
// GROUP (in clusters), PRODUCER_REGISTERS, CONSUMER_REGISTERS, KERNEL.

#include <ptxlab/bulk_copy.cuh>
#include <ptxlab/elect.cuh>
#include <ptxlab/gemm_cluster.cuh>
#include <ptxlab/gemm_edges.cuh>
#include <ptxlab/gemm_multiply.cuh>
#include <ptxlab/gemm_operand.cuh>
#include <ptxlab/gemm_schedule.cuh>
#include <ptxlab/gemm_store.cuh>
#include <ptxlab/setmaxnreg.cuh>

namespace {

constexpr int BK = ptxlab::TILE_DEPTH<TYPE>;
constexpr int CONSUMERS = BM / 64;  // warpgroups; the producer comes first
constexpr int BYTES_A = BM * BK * 2, BYTES_B = BN * BK * 2, STAGE = BYTES_A + BYTES_B;
using ShareOfA = ptxlab::OperandTile<BM / CLUSTER_N, A_K>;  // what a block copies of a tile
using ShareOfB = ptxlab::OperandTile<BN / CLUSTER_M, B_K>;
using Cluster = ptxlab::ClusterPlace<CLUSTER_M, CLUSTER_N>;
using Ring = ptxlab::Ring<STAGES>;
using Turn = ptxlab::Turn<STAGES>;
using Store = ptxlab::PanelStore<OUT, SCALED, BUFFERS>;
using Tiles = ptxlab::Schedule<Cluster, ptxlab::Deal::whole, 1, BM, BN, BK, GROUP>;
using ptxlab::TensorMap;
using ptxlab::Work;

constexpr bool MULTICAST = SHARE == 0;
constexpr bool SHARES_A = CLUSTER_N > 1, SHARES_B = CLUSTER_M > 1;
constexpr int SHARED = SHARES_A * ShareOfA::BYTES + SHARES_B * ShareOfB::BYTES;  // that neighbours get too

// SHARE 1: a phase of it ends when what a block brings for its neighbours too has landed in its own stage.
__device__ __forceinline__ unsigned landed(const Ring& ring, int stage)
{
    return ring.barriers + Ring::BYTES + 8 * stage;
}

// Where in a stage lies what this block brings.
__device__ __forceinline__ unsigned part_of_a(const Cluster& place) { return place.col * ShareOfA::BYTES; }
__device__ __forceinline__ unsigned part_of_b(const Cluster& place)
{
    return BYTES_A + place.row * ShareOfB::BYTES;
}

// One thread fills stage after stage, for this block and its neighbours in the cluster.
__device__ __forceinline__ void produce(const TensorMap& a, const TensorMap& b, const Ring& ring,
                                        unsigned shared, Tiles tiles)
{
    Turn turn;
    Work work;
    while (tiles.next(work)) {
        const int row = work.row + tiles.place.col * (BM / CLUSTER_N);
        const int col = work.col + tiles.place.row * (BN / CLUSTER_M);
#pragma unroll 1
        for (int step = 0; step < tiles.steps; ++step, turn.advance()) {
            const unsigned stage = shared + turn.stage * STAGE, full = ring.full(turn.stage);
            const unsigned own = MULTICAST ? full : landed(ring, turn.stage);
            const unsigned to_a = stage + part_of_a(tiles.place), to_b = stage + part_of_b(tiles.place);
            ring.wait_empty(turn);
            // bytes from outside of the matrix count too, and by multicast those that neighbours ask for
            ptxlab::mbarrier_arrive_expect_tx(own, MULTICAST ? STAGE : SHARED);
            if constexpr (SHARES_A && MULTICAST)
                ShareOfA::multicast(to_a, a, row, step * BK, full, tiles.place.row_mask());
            else
                ShareOfA::load(to_a, a, row, step * BK, SHARES_A ? own : full);
            if constexpr (SHARES_B && MULTICAST)
                ShareOfB::multicast(to_b, b, col, step * BK, full, tiles.place.col_mask());
            else
                ShareOfB::load(to_b, b, col, step * BK, SHARES_B ? own : full);
        }
    }
    if constexpr (Cluster::TILES > 1) ring.drain(turn);  // neighbours arrive at these barriers
}

// SHARE 1: one thread sends what has landed on to the neighbours. Their stages are empty, as this block's own
// is: "empty" counts the consumers of all of them; so none is overwritten while it is still sent, either.
__device__ __forceinline__ void forward(const Ring& ring, unsigned shared, Tiles tiles)
{
    Turn turn;
    const Cluster& place = tiles.place;
    const auto rank = [](int row, int col) { return row * CLUSTER_N + col; };
    const auto send = [&](unsigned part, unsigned bytes, int neighbour) {
        const unsigned full = ptxlab::map_to_block(ring.full(turn.stage), neighbour);
        ptxlab::bulk_send(ptxlab::map_to_block(part, neighbour), part, bytes, full);
    };
    Work work;
    while (tiles.next(work)) {
#pragma unroll 1
        for (int step = 0; step < tiles.steps; ++step, turn.advance()) {
            const unsigned stage = shared + turn.stage * STAGE;
            ptxlab::mbarrier_wait(landed(ring, turn.stage), turn.parity);
#pragma unroll
            for (int i = 1; i < CLUSTER_N; ++i)
                send(stage + part_of_a(place), ShareOfA::BYTES, rank(place.row, (place.col + i) % CLUSTER_N));
#pragma unroll
            for (int i = 1; i < CLUSTER_M; ++i)
                send(stage + part_of_b(place), ShareOfB::BYTES, rank((place.row + i) % CLUSTER_M, place.col));
            ptxlab::mbarrier_arrive_expect_tx(ring.full(turn.stage), STAGE - SHARED);  // all but what landed
        }
    }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(128 * (1 + CONSUMERS), 1)
KERNEL(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
       const __grid_constant__ TensorMap to, const OUT* c, int m, int n, int k, float alpha, float beta)
{
    extern __shared__ __align__(1024) unsigned char memory[];  // the swizzle is one of absolute addresses
    const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(memory));
    const unsigned panels = shared + STAGES * STAGE;
    const Ring ring(panels + 4 * CONSUMERS * Store::BYTES);
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // alike in the warp, and known to be
    Tiles tiles(m, n, k);

    if (threadIdx.x == 0) {
        if constexpr (!MULTICAST)
            for (int stage = 0; stage < STAGES; ++stage) ptxlab::mbarrier_init(landed(ring, stage), 1);
        ring.init(4 * CONSUMERS * Cluster::NEIGHBOURS);
    }
    Cluster::meet();  // before anyone arrives at a barrier, or copies into a neighbour

    if (warp < 4) {
        ptxlab::setmaxnreg_dec<PRODUCER_REGISTERS>();
        unsigned leader;
        if (warp == 0 && ptxlab::elect(~0u, leader)) produce(a, b, ring, shared, tiles);
        if (!MULTICAST && warp == 1 && ptxlab::elect(~0u, leader)) forward(ring, shared, tiles);
    } else {
        ptxlab::setmaxnreg_inc<CONSUMER_REGISTERS>();
        Store store{panels + (warp - 4) * Store::BYTES, {c, m, n, alpha, beta}};
        const unsigned own = shared + (warp / 4 - 1) * ptxlab::BYTES_OF_64_ROWS;  // its rows of A
        Turn turn;
        Work work;
        while (tiles.next(work)) {
            unsigned sums[1][1][BN / 2];
            const int last = ptxlab::start_products<TYPE, STAGE, A_K, B_K>(sums, ring, turn, tiles.place,
                                                                           own, shared + BYTES_A, tiles.steps);
            ptxlab::end_products(ring, tiles.place, last);
            store.template store<BN, 1>(to, sums[0], work.row + (warp - 4) * 16, work.col);
        }
        Store::finish();
    }
}
