// wmma-warptile: a warp owns a large tile, so that what it loads is used often; copies go past the registers.
// C = alpha A x B + beta C, C row-major.
//
// Idea: in wmma-dbuf a warp loads two fragments for one product of 16x16x16. Here it owns WM x WN of C, say
// 64x64: it loads 4 fragments of A and 4 of B, and multiplies each with each, 16 products of 8 loads. The
// shared-memory port, which was the limit, has a quarter of the work for the same FLOP. The block's tile
// grows with the warps' (128x128, of 4 warps), and with it how often a byte from the L2 is used: 64 FLOP a
// byte instead of 32. The sums take WM * WN / 32 registers of a thread, 128 for 64x64; the next tiles no
// longer find room beside them. So cp.async writes them straight into shared memory, where STAGES of them
// have their place: one is read, the others are on their way. A step takes BK of k: a deeper one has fewer
// barriers for the same work, and needs more memory. Two blocks share an SM: one multiplies while the other
// waits.
//
// What limits it, on an H200 (2026-11-30; f16, tn, random data, all sides in turn in one run), in FLOP per
// clock and SM, of which a loop of mma.sync alone did 2721 with bf16:
//   - 128x128x32 in 4 stages did 1334 at 4096^3, 1274 at 8192^3 and 1212 at 2048^3 (308, 290, 282 TFLOP/s,
//     56, 57 and 48 % of that loop's). 128x128x64 in 3 stages, with half the barriers, did 1471, 1573 and
//     1284 (336, 333, 300); but bf16 has not the registers for it. 128x256, one block an SM, did 1210, 1248
//     and 1125 with BK = 32, and 1389, 1448 and 1266 with 64.
//   - Waiting: of 6.6 warps per issued instruction (128x128x64, 4096^3) 1.07 waited for copies or their
//     addresses, 0.49 for fragments, which are loaded when they are needed, not before, and 0.36 at the
//     barrier. The tensor pipe was busy in 56 % of the active cycles. Three instructions were issued for each
//     HMMA.
//   - The L2: three quarters of its throughput was used.
//   - Padded lines begin anywhere in 128 bytes, so that a copy touches more of them: 4.2 million conflicts
//     were counted, in ampere, which swizzles, 0.07 million.
//   - bf16: its fragments come as many small loads instead of one ldmatrix (NVRTC 13.0). 128x256x32 in 4
//     stages did 937, 958 and 878 (214, 205, 207 TFLOP/s).
//
// What the next rung changes (mma-naive): fragments are loaded and multiplied by the instructions themselves,
// ldmatrix and mma.sync, whose register layouts are documented. What wmma hides can then be shaped.
//
// Macros: TYPE (half, __nv_bfloat16), ACCUMULATE (float, half), OUT (half, __nv_bfloat16, float), A_LAYOUT
// and B_LAYOUT (row_major, col_major: which way the stored matrix is contiguous), BM BN BK (the block's
// tile), WM WN (a warp's), STAGES, ALIGNED (1: both leading dimensions are multiples of 8, so that lines
// start at multiples of 16 bytes; 0: any), KERNEL (the name).

#include <mma.h>
#include <ptxlab/gemm_edges.cuh>

using namespace nvcuda;

namespace {

constexpr int FRAGMENT = 16;  // what wmma multiplies at once, in each direction
constexpr int WARPS_ACROSS = BN / WN;
constexpr int WARPS = BM / WM * WARPS_ACROSS;
constexpr int THREADS = 32 * WARPS;
constexpr int BLOCKS = THREADS <= 256 && WM * WN <= 2048 ? 2 : 1;  // of an SM, by registers
constexpr int TILES_M = WM / FRAGMENT, TILES_N = WN / FRAGMENT;  // of wmma, in a warp's tile

template <typename Layout>
constexpr bool by_rows = false;
template <>
constexpr bool by_rows<wmma::row_major> = true;

using Source = ptxlab::TileSource<TYPE, ALIGNED>;

// A tile of ROWS x COLS of a matrix in shared memory, its lines contiguous as they are in global memory and
// padded by 16 bytes (see wmma-tiled).
template <typename Layout, int ROWS, int COLS>
struct Tile {
    static constexpr int LINES = by_rows<Layout> ? ROWS : COLS, WIDTH = by_rows<Layout> ? COLS : ROWS;
    static constexpr int PITCH = WIDTH + ptxlab::CHUNK, CHUNKS = WIDTH / ptxlab::CHUNK;  // of a line
    static constexpr int LINES_AT_ONCE = THREADS / CHUNKS;  // that the block copies, a chunk a thread
    static constexpr int COPIES = LINES / LINES_AT_ONCE;
    static constexpr int ELEMENTS = LINES * PITCH;
    static_assert(LINES % LINES_AT_ONCE == 0, "every thread copies as much");

    // The tile in global memory; (row, col) of the matrix of rows x cols is its first element.
    static __device__ __forceinline__ Source source(const TYPE* matrix, int rows, int cols, int row, int col)
    {
        return by_rows<Layout> ? Source(matrix, rows, cols, row, col) : Source(matrix, cols, rows, col, row);
    }

    // Begins to bring this thread's chunks.
    static __device__ __forceinline__ void copy(const Source& source, TYPE* tile)
    {
        const int line = threadIdx.x / CHUNKS, first = threadIdx.x % CHUNKS * ptxlab::CHUNK;
        source.template copy<COPIES>(tile + line * PITCH + first, LINES_AT_ONCE * PITCH, line, first,
                                     LINES_AT_ONCE);
    }

    // Where the fragment at (row, col) of the tile begins.
    static __device__ __forceinline__ const TYPE* at(const TYPE* tile, int row, int col)
    {
        return tile + (by_rows<Layout> ? row * PITCH + col : col * PITCH + row);
    }
};

using FragmentA = wmma::fragment<wmma::matrix_a, FRAGMENT, FRAGMENT, FRAGMENT, TYPE, wmma::A_LAYOUT>;
using FragmentB = wmma::fragment<wmma::matrix_b, FRAGMENT, FRAGMENT, FRAGMENT, TYPE, wmma::B_LAYOUT>;
using TileA = Tile<wmma::A_LAYOUT, BM, BK>;
using TileB = Tile<wmma::B_LAYOUT, BK, BN>;
constexpr int PLACE = TileA::ELEMENTS + TileB::ELEMENTS;  // of A's and B's tiles together

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
KERNEL(const TYPE* a, const TYPE* b, OUT* c, int m, int n, int k, float alpha, float beta)
{
    extern __shared__ __align__(128) unsigned char memory[];
    TYPE* const tiles = reinterpret_cast<TYPE*>(memory);

    const int across = (n - 1) / BN + 1;
    const int row = static_cast<int>(blockIdx.x / across) * BM;
    const int col = static_cast<int>(blockIdx.x % across) * BN;
    const int warp = threadIdx.x / 32;
    const int warp_row = warp / WARPS_ACROSS * WM, warp_col = warp % WARPS_ACROSS * WN;

    wmma::fragment<wmma::accumulator, FRAGMENT, FRAGMENT, FRAGMENT, ACCUMULATE> sums[TILES_M][TILES_N];
#pragma unroll
    for (int i = 0; i < TILES_M; ++i)
#pragma unroll
        for (int j = 0; j < TILES_N; ++j) wmma::fill_fragment(sums[i][j], ACCUMULATE(0.0f));

    const auto copy = [&](unsigned step, int place) {  // past the end of k it brings zeros
        const int from = static_cast<int>(min(step, static_cast<unsigned>(k)));
        TileA::copy(TileA::source(a, m, k, row, from), tiles + place * PLACE);
        TileB::copy(TileB::source(b, k, n, from, col), tiles + place * PLACE + TileA::ELEMENTS);
        ptxlab::cp_async_commit();
    };
    for (int place = 0; place < STAGES - 1; ++place) copy(place * BK, place);

    int reading = 0, writing = STAGES - 1;
#pragma unroll 1
    for (int step = 0; step < k; step += BK) {
        ptxlab::cp_async_wait<STAGES - 2>();
        __syncthreads();  // this step's tiles are there, and those of the step before have been read
        const TYPE* const a_tile = tiles + reading * PLACE;
        const TYPE* const b_tile = a_tile + TileA::ELEMENTS;
#pragma unroll
        for (int depth = 0; depth < BK; depth += FRAGMENT) {
            FragmentB b_fragments[TILES_N];
#pragma unroll
            for (int j = 0; j < TILES_N; ++j)
                wmma::load_matrix_sync(b_fragments[j], TileB::at(b_tile, depth, warp_col + FRAGMENT * j),
                                       TileB::PITCH);
#pragma unroll
            for (int i = 0; i < TILES_M; ++i) {
                FragmentA a_fragment;
                wmma::load_matrix_sync(a_fragment, TileA::at(a_tile, warp_row + FRAGMENT * i, depth),
                                       TileA::PITCH);
#pragma unroll
                for (int j = 0; j < TILES_N; ++j)
                    wmma::mma_sync(sums[i][j], a_fragment, b_fragments[j], sums[i][j]);
            }
            if (depth == 0) copy(step + (STAGES - 1u) * BK, writing);  // once the tensor cores are at work
        }
        reading = reading + 1 == STAGES ? 0 : reading + 1;
        writing = writing + 1 == STAGES ? 0 : writing + 1;
    }
    ptxlab::cp_async_wait<0>();
    __syncthreads();

    // The tiles are done with: each warp's part of their memory takes 16 rows of its sums at a time.
    constexpr int PITCH = WN + ptxlab::CHUNK;
    ACCUMULATE* const staging = reinterpret_cast<ACCUMULATE*>(memory) + warp * FRAGMENT * PITCH;
#pragma unroll
    for (int i = 0; i < TILES_M; ++i) {
        __syncwarp();
#pragma unroll
        for (int j = 0; j < TILES_N; ++j)
            wmma::store_matrix_sync(staging + FRAGMENT * j, sums[i][j], PITCH, wmma::mem_row_major);
        __syncwarp();
        const ptxlab::TileTarget<OUT> target(c, m, n, row + warp_row + FRAGMENT * i, col + warp_col, alpha,
                                             beta);
        ptxlab::write_rows<WN, PITCH>(staging, target);
    }
}
