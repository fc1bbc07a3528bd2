// wmma-naive: the shortest GEMM that uses the tensor cores. C = alpha A x B + beta C, C row-major.
//
// Idea: one warp owns one 16x16 tile of C. It walks along k in steps of 16; each step loads a 16x16 tile
// of A and one of B straight from global memory into fragments and multiplies them (two HMMA.16816).
//
// What limits it: the way operands come. Each of the 8 loads of a step gathers 8 pieces of 16 bytes, one
// from each of 8 rows. When the rows lie a multiple of 128 bytes apart, as they do for every power of two,
// all 8 pieces are in the same banks of the L1 and come one after the other: 64 cycles for 8192 FLOP, which
// the tensor cores of an SM do in 2. (ncu on an H200: L1 98 % busy, 3 % of cuBLAS.) Other sizes spread the
// pieces, and run faster. And nothing is shared: the warp beside loads the same rows again.
//
// Measured (H200, 2026-11-30; bf16 tn, normal values, cold, all rungs in turn in one run): at 2048^3, 4096^3
// and 8192^3 27, 26 and 27 TFLOP/s; 4, 4 and 3 % of the faster library; 4, 5 and 5 % of the ceiling of
// mma-sync. With f16 at 2048^3, 4096^3 and 8192^3 26, 25 and 26 TFLOP/s; 4, 4 and 3 % of the faster library;
// 5, 5 and 5 % of the ceiling of mma-sync.
//
// What the next rung changes (wmma-tiled): a block of 16 warps brings a 64-wide tile into shared memory
// once, and each byte then serves four warps.
//
// Macros: TYPE (half, __nv_bfloat16), ACCUMULATE (float, half), OUT (half, __nv_bfloat16, float), A_LAYOUT
// and B_LAYOUT (row_major, col_major: which way the stored matrix is contiguous), KERNEL (the name).

#include <mma.h>

using namespace nvcuda;

constexpr int TILE = 16;

template <typename Layout>
constexpr bool by_rows = false;
template <>
constexpr bool by_rows<wmma::row_major> = true;

// Loads the 16x16 tile at (row, col) of a packed rows x cols matrix. A tile that is whole, and whose lines
// start on the 16 bytes that wmma asks for (a leading dimension that is a multiple of 8), comes straight
// from global memory. Any other one is copied to shared memory first, with zeros outside of the matrix:
// they add nothing to a product.
template <typename Use, typename Layout>
__device__ void load(wmma::fragment<Use, TILE, TILE, TILE, TYPE, Layout>& fragment, const TYPE* matrix,
                     int rows, int cols, int row, int col, TYPE* staging)
{
    const int lines = by_rows<Layout> ? rows : cols;  // a line is what lies contiguous in memory
    const int width = by_rows<Layout> ? cols : rows;
    const int line = by_rows<Layout> ? row : col;
    const int first = by_rows<Layout> ? col : row;
    const TYPE* corner = matrix + static_cast<size_t>(line) * width + first;
    if (lines - line >= TILE && width - first >= TILE && width % 8 == 0) {
        wmma::load_matrix_sync(fragment, corner, width);
        return;
    }
    __syncwarp();  // the previous step's tile has been read
    for (int i = threadIdx.x; i < TILE * TILE; i += warpSize) {
        const int y = i / TILE, x = i % TILE;
        const bool inside = y < lines - line && x < width - first;
        staging[i] = inside ? corner[static_cast<size_t>(y) * width + x] : TYPE(0.0f);
    }
    __syncwarp();
    wmma::load_matrix_sync(fragment, staging, TILE);
}

extern "C" __global__ void __launch_bounds__(32)
KERNEL(const TYPE* a, const TYPE* b, OUT* c, int m, int n, int k, float alpha, float beta)
{
    __shared__ __align__(32) TYPE a_tile[TILE * TILE];
    __shared__ __align__(32) TYPE b_tile[TILE * TILE];
    __shared__ __align__(32) ACCUMULATE c_tile[TILE * TILE];

    const int tiles_across = (n - 1) / TILE + 1;
    const int row = static_cast<int>(blockIdx.x / tiles_across) * TILE;
    const int col = static_cast<int>(blockIdx.x % tiles_across) * TILE;

    wmma::fragment<wmma::matrix_a, TILE, TILE, TILE, TYPE, wmma::A_LAYOUT> a_fragment;
    wmma::fragment<wmma::matrix_b, TILE, TILE, TILE, TYPE, wmma::B_LAYOUT> b_fragment;
    wmma::fragment<wmma::accumulator, TILE, TILE, TILE, ACCUMULATE> c_fragment;
    wmma::fill_fragment(c_fragment, ACCUMULATE(0.0f));

    for (int step = 0; step < k; step += TILE) {
        load(a_fragment, a, m, k, row, step, a_tile);
        load(b_fragment, b, k, n, step, col, b_tile);
        wmma::mma_sync(c_fragment, a_fragment, b_fragment, c_fragment);
    }

    // Which lane holds which element of a fragment is not documented, so the tile passes through shared
    // memory: there each lane scales, converts and guards elements that it can name.
    wmma::store_matrix_sync(c_tile, c_fragment, TILE, wmma::mem_row_major);
    __syncwarp();
    for (int i = threadIdx.x; i < TILE * TILE; i += warpSize) {
        const int y = i / TILE, x = i % TILE;
        if (y < m - row && x < n - col) {
            OUT& element = c[static_cast<size_t>(row + y) * n + col + x];
            float value = alpha * static_cast<float>(c_tile[i]);
            if (beta != 0.0f) value += beta * static_cast<float>(element);
            element = static_cast<OUT>(value);
        }
    }
}
