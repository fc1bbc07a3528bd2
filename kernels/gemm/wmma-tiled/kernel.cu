// wmma-tiled: what a block needs is brought to shared memory once. C = alpha A x B + beta C, C row-major.
//
// Idea: 16 warps own a 64x64 tile of C together, each 16x16 of it. In a step the block copies a tile of A
// and one of B, 32 deep in k, to shared memory: 512 chunks of 16 bytes, one for each thread. Then every warp
// takes its fragments from there. A byte that came once from global memory serves four warps.
//
// Lines in shared memory are padded by 16 bytes: a load of a fragment takes 8 lines at the same place, and
// without the padding several of them would lie in the same banks and come one after the other. (Rung
// mma-naive shows what that costs, mma-padded what this padding does about it.)
//
// What limits it: everyone waits for everyone. While the copy is on its way the tensor cores stand still,
// and while they multiply nothing is copied. Behind that the shared-memory port: a warp's 16x16 tile takes
// two fragments, 8 wavefronts, for two HMMA; it is busy half of the time at most. bf16 is slower than f16:
// its fragments come as 16 loads of 4 bytes a lane instead of 4 ldmatrix.x4, which are 47 instructions a
// step instead of 35, and 36 registers instead of 32, which leave room for three blocks of an SM instead of
// four (NVRTC 13.0).
//
// Measured (H200, 2026-11-30; bf16 tn, normal values, cold, all rungs in turn in one run): at 2048^3, 4096^3
// and 8192^3 79, 82 and 86 TFLOP/s; 11, 11 and 11 % of the faster library; 13, 14 and 15 % of the ceiling of
// mma-sync; over wmma-naive +193.3, +204.3 and +214.1 %. With f16 at 2048^3, 4096^3 and 8192^3 91, 97 and 98
// TFLOP/s; 14, 13 and 13 % of the faster library; 16, 18 and 18 % of the ceiling of mma-sync; over wmma-naive
// +254.8, +288.8 and +266.7 %.
//
// What the next rung changes (wmma-dbuf): the next tile is on its way while this one is multiplied.
//
// Macros: TYPE (half, __nv_bfloat16), ACCUMULATE (float, half), OUT (half, __nv_bfloat16, float), A_LAYOUT
// and B_LAYOUT (row_major, col_major: which way the stored matrix is contiguous), ALIGNED (1: both leading
// dimensions are multiples of 8, so that lines start at multiples of 16 bytes; 0: any), KERNEL (the name).

#include <mma.h>
#include <ptxlab/gemm_edges.cuh>

using namespace nvcuda;

namespace {

constexpr int BM = 64, BN = 64, BK = 32;  // a block's tile
constexpr int FRAGMENT = 16;              // a warp's tile, and one step of wmma along k
constexpr int WARPS_ACROSS = BN / FRAGMENT;
constexpr int WARPS = BM / FRAGMENT * WARPS_ACROSS;
constexpr int THREADS = 32 * WARPS;
static_assert((BM + BN) * BK == THREADS * ptxlab::CHUNK, "a chunk for each thread");

template <typename Layout>
constexpr bool by_rows = false;
template <>
constexpr bool by_rows<wmma::row_major> = true;

using Source = ptxlab::TileSource<TYPE, ALIGNED>;

// A tile of ROWS x COLS of a matrix in shared memory, its lines contiguous as they are in global memory.
template <typename Layout, int ROWS, int COLS>
struct Tile {
    static constexpr int LINES = by_rows<Layout> ? ROWS : COLS, WIDTH = by_rows<Layout> ? COLS : ROWS;
    static constexpr int PITCH = WIDTH + ptxlab::CHUNK, CHUNKS = WIDTH / ptxlab::CHUNK;  // of a line
    alignas(32) TYPE data[LINES * PITCH];

    // The tile in global memory; (row, col) of the matrix of rows x cols is its first element.
    static __device__ Source source(const TYPE* matrix, int rows, int cols, int row, int col)
    {
        return by_rows<Layout> ? Source(matrix, rows, cols, row, col) : Source(matrix, cols, rows, col, row);
    }

    // Where the fragment at (row, col) of the tile begins.
    __device__ const TYPE* at(int row, int col) const
    {
        return data + (by_rows<Layout> ? row * PITCH + col : col * PITCH + row);
    }
};

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS)
KERNEL(const TYPE* a, const TYPE* b, OUT* c, int m, int n, int k, float alpha, float beta)
{
    using TileA = Tile<wmma::A_LAYOUT, BM, BK>;
    using TileB = Tile<wmma::B_LAYOUT, BK, BN>;
    __shared__ TileA a_tile;
    __shared__ TileB b_tile;
    __shared__ alignas(32) ACCUMULATE c_tiles[WARPS][FRAGMENT * FRAGMENT];

    const int across = (n - 1) / BN + 1;
    const int row = static_cast<int>(blockIdx.x / across) * BM;
    const int col = static_cast<int>(blockIdx.x % across) * BN;
    const int thread = threadIdx.x, warp = thread / 32;
    const int warp_row = warp / WARPS_ACROSS * FRAGMENT, warp_col = warp % WARPS_ACROSS * FRAGMENT;

    wmma::fragment<wmma::matrix_a, FRAGMENT, FRAGMENT, FRAGMENT, TYPE, wmma::A_LAYOUT> a_fragment;
    wmma::fragment<wmma::matrix_b, FRAGMENT, FRAGMENT, FRAGMENT, TYPE, wmma::B_LAYOUT> b_fragment;
    wmma::fragment<wmma::accumulator, FRAGMENT, FRAGMENT, FRAGMENT, ACCUMULATE> sums;
    wmma::fill_fragment(sums, ACCUMULATE(0.0f));

    // Half of the threads bring A's tile, the others B's: of each step the chunk at (line, first).
    const bool brings_a = thread < THREADS / 2;
    const int chunks = brings_a ? TileA::CHUNKS : TileB::CHUNKS, index = thread % (THREADS / 2);
    const int line = index / chunks, first = index % chunks * ptxlab::CHUNK;
    TYPE* const to =
        first + (brings_a ? a_tile.data + line * TileA::PITCH : b_tile.data + line * TileB::PITCH);

#pragma unroll 1
    for (int step = 0; step < k; step += BK) {
        const Source source =
            brings_a ? TileA::source(a, m, k, row, step) : TileB::source(b, k, n, step, col);
        *reinterpret_cast<uint4*>(to) = source.chunk(line, first);
        __syncthreads();  // the tiles are there

#pragma unroll
        for (int i = 0; i < BK; i += FRAGMENT) {
            wmma::load_matrix_sync(a_fragment, a_tile.at(warp_row, i), TileA::PITCH);
            wmma::load_matrix_sync(b_fragment, b_tile.at(i, warp_col), TileB::PITCH);
            wmma::mma_sync(sums, a_fragment, b_fragment, sums);
        }
        __syncthreads();  // all warps have read them, and the next may come
    }

    // Which lane holds which element of a fragment is not documented, so it passes through shared memory.
    wmma::store_matrix_sync(c_tiles[warp], sums, FRAGMENT, wmma::mem_row_major);
    __syncwarp();
    const ptxlab::TileTarget<OUT> target(c, m, n, row + warp_row, col + warp_col, alpha, beta);
    ptxlab::write_rows<FRAGMENT, FRAGMENT>(c_tiles[warp], target);
}
