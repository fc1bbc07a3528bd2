// hopper: persistent clusters, and C by TMA. C = alpha A x B + beta C, C row-major.
//
// Idea: what the rungs below do, without their gaps. A producer fills a ring of stages, for this block and for its
// neighbours in the cluster, tile after tile. Two consumers multiply; the sums of a tile go through shared memory, a
// panel of 16 rows at a time for each warp, and TMA writes them while the warp goes on with the next panel, and
// then with the next tile. Either the consumers share a tile, each has some of its rows (cooperative), or have tiles of
// their own and take turns with the tensor cores, so that one multiplies while the other writes (PINGPONG); a tile of
// both needs less of shared memory, tiles of their own hide all of the writing. For small problems a block has one
// consumer and half of an SM, so that a block of the next kernel is there before this one ends.
//
// The kernel ahead of this one may still run while blocks start here: they set up their barriers, then wait for it to
// end before they touch its memory (DEPENDENT).
//
// What must hold, and where it is seen to:
//   a stage is overwritten when all consumers that it was copied for have read it      Ring, ClusterPlace::release
//   the parity of each phase goes on from tile to tile                                  Turn
//   all blocks of a cluster have the same number of tiles                               Tiles: it counts in clusters
//   no block ends while a neighbour may still arrive at its barriers                    the last Cluster::meet()
//   what lanes wrote to shared memory is seen by TMA                                    PanelStore: fence_proxy_async
//   a panel is overwritten when TMA has read it, and none is left unread at the end     PanelStore: tma_wait
//
// What limits it: power. In the loop over k the tensor cores are busy 97 to 99 % of the cycles (clock64 inside the
// kernel), and with consumers that take turns nearly so from tile to tile; but at 8192^3 the clock is held down to 1.4
// to 1.5 of 1.98 GHz. Small problems are limited by the start and the end of a kernel, skinny ones by how parts of k
// are added up. FINDINGS.md has what was tried.
//
// Measured (H200, 2026-11-30; bf16 tn, normal values, hot, times the speed of cuBLAS 13.1 in the same run):
// 0.90 at 1024^3, 1.04 at 2048^3, 1.03 at 3072^3, 1.04 at 4096^3, 1.03 at 6144^3, 1.06 at 8192^3, 1.03 at 12288^3,
// 1.02 at 16384^3.
//
// Macros: TYPE (half, __nv_bfloat16), OUT (half, __nv_bfloat16, float), A_K and B_K (1: the operand is contiguous in
// k, 0: in m or n), BM BN (a tile), CONSUMERS, PINGPONG, CLUSTER_M CLUSTER_N (tiles of a cluster, down and across),
// STAGES, BUFFERS (panels of a warp), GROUP (in clusters), SPLITS (of k), SCALED (0: alpha is 1 and
// beta 0), DEPENDENT,
// PRODUCER_REGISTERS, CONSUMER_REGISTERS, KERNEL.

#include <ptxlab/elect.cuh>
#include <ptxlab/gemm_cluster.cuh>
#include <ptxlab/gemm_edges.cuh>
#include <ptxlab/gemm_operand.cuh>
#include <ptxlab/gemm_order.cuh>
#include <ptxlab/gemm_ring.cuh>
#include <ptxlab/gemm_store.cuh>
#include <ptxlab/griddepcontrol.cuh>
#include <ptxlab/setmaxnreg.cuh>

namespace {

constexpr int BK = ptxlab::TILE_DEPTH;
constexpr int SHARING = PINGPONG ? 1 : CONSUMERS;  // consumers that multiply one tile together
constexpr int PARTS_M = BM / SHARING / 64, PARTS_N = (BN + 255) / 256;  // instructions that cover a consumer's part
constexpr int N = BN / PARTS_N;
constexpr int BYTES_A = BM * BK * 2, BYTES_B = BN * BK * 2, STAGE = BYTES_A + BYTES_B;
using ShareOfA = ptxlab::OperandTile<BM / CLUSTER_N, A_K>;  // what a block copies of a tile
using ShareOfB = ptxlab::OperandTile<BN / CLUSTER_M, B_K>;
using Cluster = ptxlab::ClusterPlace<CLUSTER_M, CLUSTER_N>;
using Ring = ptxlab::Ring<STAGES>;
using Turn = ptxlab::Turn<STAGES>;
using Store = ptxlab::PanelStore<OUT, SCALED, BUFFERS>;
using ptxlab::TensorMap;

// What a block does next: a tile, or of a split one the steps from `begin` to `end` along k.
struct Work {
    int row, col, begin, end;
    int tile, split;
};

// The work of this block, piece by piece: the blocks of a cluster have tiles that lie beside each other.
struct Tiles {
    Cluster place;
    int down, across;  // clusters' worth of tiles
    int steps;
    int index, stride;

    __device__ __forceinline__ Tiles(int m, int n, int k)
        : down((m - 1) / (BM * CLUSTER_M) + 1), across((n - 1) / (BN * CLUSTER_N) + 1), steps((k - 1) / BK + 1),
          index(blockIdx.x / Cluster::BLOCKS), stride(gridDim.x / Cluster::BLOCKS)
    {
    }

    __device__ __forceinline__ bool next(Work& work)
    {
        if (index >= down * across * SPLITS) return false;
        const int split = SPLITS == 1 ? 0 : index % SPLITS, cluster = index / SPLITS;
        const ptxlab::TileAt at = ptxlab::serpentine<GROUP>(cluster, down, across);
        work.row = (at.row * CLUSTER_M + place.row) * BM;
        work.col = (at.col * CLUSTER_N + place.col) * BN;
        work.begin = SPLITS == 1 ? 0 : steps * split / SPLITS;
        work.end = SPLITS == 1 ? steps : steps * (split + 1) / SPLITS;
        work.tile = cluster * Cluster::BLOCKS + place.row * CLUSTER_N + place.col;
        work.split = split;
        index += stride;
        return true;
    }

    __device__ __forceinline__ int skip()
    {
        Work other;
        return next(other) ? other.end - other.begin : 0;
    }
};

// One thread fills stage after stage, for this block and its neighbours in the cluster.
__device__ __forceinline__ void produce(const TensorMap& a, const TensorMap& b, const Ring& ring, unsigned shared,
                                        Tiles tiles)
{
    Turn turn;
    const unsigned part_a = tiles.place.col * ShareOfA::BYTES, part_b = BYTES_A + tiles.place.row * ShareOfB::BYTES;
    Work work;
    while (tiles.next(work)) {
        const int row = work.row + tiles.place.col * (BM / CLUSTER_N);
        const int col = work.col + tiles.place.row * (BN / CLUSTER_M);
#pragma unroll 1
        for (int step = work.begin; step < work.end; ++step, turn.advance()) {
            const unsigned stage = shared + turn.stage * STAGE, full = ring.full(turn.stage);
            ring.wait_empty(turn);
            ptxlab::mbarrier_arrive_expect_tx(full, STAGE);  // from neighbours too, and from outside of the matrix
            if constexpr (CLUSTER_N == 1) ShareOfA::load(stage, a, row, step * BK, full);
            else ShareOfA::multicast(stage + part_a, a, row, step * BK, full, tiles.place.row_mask());
            if constexpr (CLUSTER_M == 1) ShareOfB::load(stage + BYTES_A, b, col, step * BK, full);
            else ShareOfB::multicast(stage + part_b, b, col, step * BK, full, tiles.place.col_mask());
        }
    }
}

// Whose turn it is to multiply, where two consumers have tiles of their own: while one writes its sums, the other
// has the tensor cores to itself. Consumer 0 begins; either lets the other go on when it has started its last
// products.
struct Baton {
    unsigned barriers;  // one for each consumer
    int consumer;
    unsigned parity;

    __device__ __forceinline__ Baton(unsigned barriers, int consumer)
        : barriers(barriers), consumer(consumer), parity(consumer ^ 1)
    {
    }

    __device__ __forceinline__ void take()
    {
        ptxlab::mbarrier_wait(barriers + 8 * consumer, parity);
        parity ^= 1;
    }

    __device__ __forceinline__ void hand_over() const
    {
        if (threadIdx.x % 32 == 0) ptxlab::mbarrier_arrive(barriers + 8 * (consumer ^ 1));
    }
};

// A warpgroup multiplies its rows of all stages of a tile.
__device__ __forceinline__ void multiply(unsigned (&sums)[PARTS_M][PARTS_N][N / 2], const Ring& ring, Turn& turn,
                                         const Cluster& place, unsigned shared, int first_row, int steps, Baton& baton)
{
    const int lane = threadIdx.x % 32;
    int read = 0;  // the stage of the step before
    if constexpr (PINGPONG) baton.take();
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const unsigned stage = shared + turn.stage * STAGE;
        ring.wait_full(turn);
        ptxlab::wgmma_fence();
        ptxlab::multiply_tile<TYPE, N, PARTS_M, PARTS_N, A_K, B_K>(sums, stage + first_row * (BK * 2),
                                                                   stage + BYTES_A, step > 0);
        ptxlab::wgmma_commit();
        ptxlab::wgmma_wait<1>();  // the products of the step before are done
        if (step > 0) place.release(ring.empty(read), lane);
        read = turn.stage;
        turn.advance();
    }
    if constexpr (PINGPONG) baton.hand_over();
    ptxlab::wgmma_wait<0>();
    place.release(ring.empty(read), lane);
}

// The sums of a split tile, as each of its warps left them: [tile][part][warp][four sums][lane].
struct Partials {
    static constexpr int WARPS = 4 * SHARING, QUADS = PARTS_M * PARTS_N * N / 8;
    float4* sums;
    unsigned* arrived;  // parts of each warp's sums that are there

    __device__ __forceinline__ float4* of(const Work& work, int part, int warp) const
    {
        return sums + ((static_cast<size_t>(work.tile) * SPLITS + part) * WARPS + warp) * QUADS * 32 + threadIdx.x % 32;
    }

    // Leaves this warp's sums, and returns whether it is the last one: it then holds those of all parts, added in
    // their order, whoever came last.
    __device__ __forceinline__ bool reduce(unsigned (&own)[PARTS_M][PARTS_N][N / 2], const Work& work, int warp) const
    {
        unsigned* const flat = &own[0][0][0];
        float4* const to = of(work, work.split, warp);
#pragma unroll
        for (int i = 0; i < QUADS; ++i)
            __stcg(to + 32 * i, make_float4(__uint_as_float(flat[4 * i]), __uint_as_float(flat[4 * i + 1]),
                                            __uint_as_float(flat[4 * i + 2]), __uint_as_float(flat[4 * i + 3])));
        if (!last(arrived + work.tile * WARPS + warp)) return false;
#pragma unroll
        for (int i = 0; i < 4 * QUADS; ++i) flat[i] = 0;  // its own come back too: they have a place in the order
#pragma unroll 1
        for (int part = 0; part < SPLITS; ++part) {
            const float4* const from = of(work, part, warp);
#pragma unroll
            for (int i = 0; i < QUADS; ++i) {
                const float4 more = __ldcg(from + 32 * i);
                flat[4 * i] = __float_as_uint(__uint_as_float(flat[4 * i]) + more.x);
                flat[4 * i + 1] = __float_as_uint(__uint_as_float(flat[4 * i + 1]) + more.y);
                flat[4 * i + 2] = __float_as_uint(__uint_as_float(flat[4 * i + 2]) + more.z);
                flat[4 * i + 3] = __float_as_uint(__uint_as_float(flat[4 * i + 3]) + more.w);
            }
        }
        return true;
    }

private:
    // Counts this warp's part, which other blocks see from here on, and returns whether all are there. The last one
    // leaves the counter as the next launch wants it.
    static __device__ __forceinline__ bool last(unsigned* counter)
    {
        __threadfence();
        __syncwarp();
        unsigned before = 0;
        if (threadIdx.x % 32 == 0) before = atomicAdd(counter, 1);
        const bool is_last = __shfl_sync(~0u, before, 0) == SPLITS - 1;
        if (is_last && threadIdx.x % 32 == 0) *counter = 0;
        __threadfence();
        return is_last;
    }
};

__device__ __forceinline__ void consume(const TensorMap& c, Store store, const Partials& partials, const Ring& ring,
                                        unsigned shared, Tiles tiles, int warp, Baton baton)
{
    const int first_row = PINGPONG ? 0 : warp / 4 * PARTS_M * 64;  // of this warpgroup, in the tile
    Turn turn;
    if (PINGPONG && warp / 4 == 1) turn.advance(tiles.skip());  // the first tile is the other's
    Work work;
    while (tiles.next(work)) {
        unsigned sums[PARTS_M][PARTS_N][N / 2];
        multiply(sums, ring, turn, tiles.place, shared, first_row, work.end - work.begin, baton);
        const int row = work.row + first_row + warp % 4 * 16;
        if (row < store.scaling.m && (SPLITS == 1 || partials.reduce(sums, work, warp % (4 * SHARING)))) {
#pragma unroll
            for (int i = 0; i < PARTS_M; ++i) store.template store<N, PARTS_N>(c, sums[i], row + 64 * i, work.col);
        }
        if constexpr (PINGPONG) turn.advance(tiles.skip());
    }
    Store::finish();
}

}  // namespace

extern "C" __global__ void __launch_bounds__(128 * (1 + CONSUMERS), CONSUMERS == 1 ? 2 : 1)
KERNEL(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c_map,
       const OUT* c, int m, int n, int k, float alpha, float beta, float4* partial_sums, unsigned* arrived)
{
    extern __shared__ __align__(1024) unsigned char memory[];  // the swizzle is one of absolute addresses
    const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(memory));
    const unsigned staging = shared + STAGES * STAGE;
    const Ring ring(staging + 4 * CONSUMERS * Store::BYTES);
    const unsigned batons = ring.barriers + Ring::BYTES;
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // alike in the warp, and known to be
    const Tiles tiles(m, n, k);

    if (threadIdx.x == 0) {
        for (int consumer = 0; consumer < 2; ++consumer) ptxlab::mbarrier_init(batons + 8 * consumer, 4);
        ring.init(4 * SHARING * Cluster::NEIGHBOURS);
        ptxlab::prefetch_map(a);
        ptxlab::prefetch_map(b);
        ptxlab::prefetch_map(c_map);
    }
    Cluster::meet();  // before anyone arrives at a barrier, or copies into a neighbour
    if constexpr (DEPENDENT) {
        ptxlab::launch_dependents();
        ptxlab::grid_dependency_wait();
    }

    if (warp < 4) {
        if constexpr (CONSUMERS > 1) ptxlab::setmaxnreg_dec<PRODUCER_REGISTERS>();
        unsigned leader;
        if (warp == 0 && ptxlab::elect(~0u, leader)) produce(a, b, ring, shared, tiles);
    } else {
        if constexpr (CONSUMERS > 1) ptxlab::setmaxnreg_inc<CONSUMER_REGISTERS>();
        const Store store{staging + (warp - 4) * Store::BYTES, {c, m, n, alpha, beta}};
        consume(c_map, store, {partial_sums, arrived}, ring, shared, tiles, warp - 4, Baton(batons, warp / 4 - 1));
    }
    if constexpr (Cluster::BLOCKS > 1) Cluster::meet();  // a neighbour may still arrive at a barrier of this block
}
