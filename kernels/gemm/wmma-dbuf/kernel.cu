// wmma-dbuf: two buffers, so that copying and multiplying happen at once. C = alpha A x B + beta C, C
// row-major.
//
// Idea: everything as in wmma-tiled, but the tiles of A and B have two places each. While the warps multiply
// from one, each thread's chunk of the next tile is on its way from global memory to a register; it is
// written to the other place when the multiplication is done. So the wait for global memory passes while
// the tensor cores work, and one barrier a step is enough: nobody writes to what somebody may still read.
//
// What limits it: the shared-memory port. A warp's 16x16 tile takes two fragments, 8 wavefronts of 128 bytes,
// for two HMMA, and each fragment is used for one product only. Two places also cost: which of them is read
// is worked out in each step, and registers are more (40 instead of 32 with f16, 36 with bf16, NVRTC 13.0),
// so an SM holds three blocks of it, where it holds four of wmma-tiled with f16: the other blocks covered
// part of the wait before, too. That is why from 2048^3 on it gains 3 % at most with f16, and loses 2 to 8 %
// with bf16, whose fragments come by more instructions. For each cycle it does 3 to 5 % more with f16 and 2
// to 3 % less with bf16; the rest is the clock's. (At 1024^3, where an SM has two blocks at most, it gains 20
// and 3 %.) (A compiler may undo it besides: without the __syncwarp() below the load from global memory was
// put behind the last ldmatrix, where nothing is left to wait behind.) It is here because two places are the
// step from which all later rungs go on.
//
// Measured (H200, 2026-11-30; bf16 tn, normal values, cold, all rungs in turn in one run): at 2048^3, 4096^3
// and 8192^3 76, 79 and 80 TFLOP/s; 11, 10 and 10 % of the faster library; 13, 14 and 14 % of the ceiling of
// mma-sync; over wmma-tiled -3.3 (noise), -2.3 (noise) and -8.1 %. With f16 at 2048^3, 4096^3 and 8192^3 93,
// 99 and 101 TFLOP/s; 14, 13 and 13 % of the faster library; 16, 18 and 19 % of the ceiling of mma-sync; over
// wmma-tiled +2.5, +2.2 (noise) and -1.1 (noise) %.
//
// What the next rung changes (wmma-warptile): a warp owns a larger tile, so that a fragment, once loaded, is
// multiplied with several others.
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
    __shared__ TileA a_tiles[2];
    __shared__ TileB b_tiles[2];
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
    const auto fetch = [&](int step) {  // past the end of k it brings zeros
        const Source source =
            brings_a ? TileA::source(a, m, k, row, step) : TileB::source(b, k, n, step, col);
        return source.chunk(line, first);
    };
    const auto store = [&](int place, uint4 chunk) {
        TYPE* const to = brings_a ? a_tiles[place].data + line * TileA::PITCH
                                  : b_tiles[place].data + line * TileB::PITCH;
        *reinterpret_cast<uint4*>(to + first) = chunk;
    };

    store(0, fetch(0));
    __syncthreads();
    int place = 0;
#pragma unroll 1
    for (int step = 0; step < k; step += BK) {
        const uint4 next = fetch(step + BK);
        __syncwarp();  // a place for the load to stand before: else it is compiled to right before its store
#pragma unroll
        for (int i = 0; i < BK; i += FRAGMENT) {
            wmma::load_matrix_sync(a_fragment, a_tiles[place].at(warp_row, i), TileA::PITCH);
            wmma::load_matrix_sync(b_fragment, b_tiles[place].at(i, warp_col), TileB::PITCH);
            wmma::mma_sync(sums, a_fragment, b_fragment, sums);
        }
        place ^= 1;
        store(place, next);  // where the tile before this one was: all have read it before the last barrier
        __syncthreads();     // the next tile is there, and this one has been read
    }

    // Which lane holds which element of a fragment is not documented, so it passes through shared memory.
    wmma::store_matrix_sync(c_tiles[warp], sums, FRAGMENT, wmma::mem_row_major);
    __syncwarp();
    const ptxlab::TileTarget<OUT> target(c, m, n, row + warp_row, col + warp_col, alpha, beta);
    ptxlab::write_rows<FRAGMENT, FRAGMENT>(c_tiles[warp], target);
}
