// mma-raster: mma-swizzle, with blocks in an order that suits the L2. C = alpha A x B + beta C, C row-major,
// A and B k-contiguous.
//
// Idea: blocks start in the order of their index, as many as the SMs hold; what those ask for together should
// be little, so that it comes from the L2. 132 blocks side by side in one row of tiles need 1 tile row of A
// and 132 of B; 132 blocks in a rectangle of 8 x 17 need 8 and 17. ORDER chooses:
//   0  plain: row by row, as in the rungs before,
//   1  grouped: GROUP tile rows at a time, column by column within them,
//   2  split: the columns of C are cut into strips, GROUP tiles wide, one for each z of the grid, and each
//      strip is walked row by row.
// The kernel is the same; only find_tile() is new.
//
// What limits it: as mma-swizzle. The order matters where A and B are larger than the L2 and its misses are
// what blocks wait for. At 4096^3 nearly all of both fits, and no order can help much; at 8192^3, 128 MB
// each, it does as much for each cycle as mma-swizzle, and what differs is the clock. At 16384^3, 512 MB
// each, the orders 0, 1 and 2 reached 324, 311 and 306 TFLOP/s beside each other (bf16, cold, recorded), with
// the SMs at 1516, 1473 and 1448 MHz: per cycle the same within 1.5 %, and not to be told apart by their
// times. So these blocks do not wait for the L2's misses. The rung is here because that is worth knowing,
// and later ones, which ask for more, walk over C in groups too.
//
// Measured (H200, 2026-11-30; bf16 tn, normal values, cold, all rungs in turn in one run): at 2048^3, 4096^3
// and 8192^3 288, 300 and 308 TFLOP/s; 41, 39 and 39 % of the faster library; 48, 52 and 54 % of the ceiling
// of mma-sync; over mma-swizzle +3.6, -0.9 (noise) and -3.2 (noise) %. With f16 at 2048^3, 4096^3 and 8192^3
// 281, 292 and 296 TFLOP/s; 42, 40 and 40 % of the faster library; 49, 53 and 55 % of the ceiling of
// mma-sync; over mma-swizzle +3.2, -1.0 (noise) and -2.4 %.
//
// What the next rung changes (ampere): copies go past the registers, several tiles ahead, and fragments are
// loaded a step before they are multiplied.
//
// Macros: TYPE (half, __nv_bfloat16), OUT (half, __nv_bfloat16, float), ALIGNED (1: k is a multiple of 8, so
// that lines of A and B start at multiples of 16 bytes; 0: any k), ORDER, GROUP, KERNEL (the name).

#include <ptxlab/gemm_edges.cuh>
#include <ptxlab/gemm_fragments.cuh>
#include <ptxlab/ldmatrix.cuh>
#include <ptxlab/mma_m16n8k16.cuh>

namespace {

constexpr int BM = 128, BN = 256, BK = 64;  // a block's tile
constexpr int WM = 64, WN = 64;             // a warp's
constexpr int STEP = 16;                    // of one mma along k
constexpr int WARPS_ACROSS = BN / WN;
constexpr int THREADS = 32 * (BM / WM) * WARPS_ACROSS;
constexpr int TILES_M = WM / 16, TILES_N = WN / 8;  // of one mma, in a warp's tile
constexpr int CHUNKS = BK / ptxlab::CHUNK;          // of 16 bytes, in a line

constexpr int LINE_CHUNKS = CHUNKS;  // from one line in shared memory to the next
constexpr int LINE_BYTES = LINE_CHUNKS * 16;
constexpr int PLACE = (BM + BN) * LINE_BYTES;  // of A's and B's tiles together; there are two

// Where a chunk of a tile lies, in bytes. The pattern repeats every 8 lines: further on it is an addition.
__device__ __forceinline__ int place_of(int line, int chunk)
{
    return (line * LINE_CHUNKS + (chunk ^ line % 8)) * 16;
}

using Source = ptxlab::TileSource<TYPE, ALIGNED>;

// What a thread copies of a tile of SIZE lines: a chunk of every LINES_AT_ONCE-th line. Whole chunks wait in
// registers from fetch() to store(). Single elements would take a register each, so they come in store().
template <int SIZE>
struct Copy {
    static constexpr int LINES_AT_ONCE = THREADS / CHUNKS, COUNT = SIZE / LINES_AT_ONCE;
    uint4 chunks[COUNT];

    __device__ __forceinline__ void fetch(const Source& source)
    {
        const int line = threadIdx.x / CHUNKS, first = threadIdx.x % CHUNKS * ptxlab::CHUNK;
        if constexpr (ALIGNED) source.fetch(chunks, line, first, LINES_AT_ONCE);
    }

    __device__ __forceinline__ void store(const Source& source, unsigned char* tile) const
    {
        const int line = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
        unsigned char* const first = tile + place_of(line, chunk);
#pragma unroll(ALIGNED ? COUNT : 1)
        for (int i = 0; i < COUNT; ++i) {
            uint4& place = *reinterpret_cast<uint4*>(first + i * LINES_AT_ONCE * LINE_BYTES);
            place = ALIGNED ? chunks[i] : source.chunk(line + i * LINES_AT_ONCE, chunk * ptxlab::CHUNK);
        }
    }
};

// 16 rows of A's tile, from the line at `lines` on, one step deep. Matrices: rows 0-7, rows 8-15, then the
// same, 8 further in k.
__device__ __forceinline__ void load_a(unsigned (&a)[4], unsigned lines, int step, int lane)
{
    using namespace ptxlab;
    const int place = place_of(lane % 16, step / CHUNK + lane / 16);
    ldmatrix<LdMatrix::m8n8, LdMatrixType::b16, 4, false>(a, lines + place);
}

// 16 columns of B's tile, which has a line for each column: two products' worth. Matrices: k 0-7, k 8-15,
// then the same of the next 8 columns.
__device__ __forceinline__ void load_b(unsigned (&b)[2][2], unsigned lines, int step, int lane)
{
    using namespace ptxlab;
    const int place = place_of(lane / 16 * 8 + lane % 8, step / CHUNK + lane / 8 % 2);
    unsigned both[4];
    ldmatrix<LdMatrix::m8n8, LdMatrixType::b16, 4, false>(both, lines + place);
    b[0][0] = both[0], b[0][1] = both[1];
    b[1][0] = both[2], b[1][1] = both[3];
}

// The tile of C that is this block's: its row and column among the tiles.
__device__ __forceinline__ void find_tile(int down, int across, int& tile_row, int& tile_col)
{
    const int index = blockIdx.x;
    if constexpr (ORDER == 0) {
        tile_row = index / across;
        tile_col = index % across;
    } else if constexpr (ORDER == 1) {
        const int first = index / (GROUP * across) * GROUP, within = index % (GROUP * across);
        const int height = min(GROUP, down - first);  // the last group may be lower
        tile_row = first + within % height;
        tile_col = within / height;
    } else {
        tile_row = index / GROUP;
        tile_col = blockIdx.z * GROUP + index % GROUP;
    }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS)
KERNEL(const TYPE* a, const TYPE* b, OUT* c, int m, int n, int k, float alpha, float beta)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(memory));

    int tile_row, tile_col;
    const int across = (n - 1) / BN + 1;
    find_tile((m - 1) / BM + 1, across, tile_row, tile_col);
    if (tile_col >= across) return;  // the last strip may be narrower
    const int row = tile_row * BM, col = tile_col * BN;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_row = warp / WARPS_ACROSS * WM, warp_col = warp % WARPS_ACROSS * WN;

    Copy<BM> copy_a;
    Copy<BN> copy_b;
    const auto fetch = [&](int step) {  // past the end of k it brings zeros
        copy_a.fetch(Source(a, m, k, row, step));
        copy_b.fetch(Source(b, n, k, col, step));
    };
    const auto store = [&](int step, int place) {
        copy_a.store(Source(a, m, k, row, step), memory + place * PLACE);
        copy_b.store(Source(b, n, k, col, step), memory + place * PLACE + BM * LINE_BYTES);
    };

    float sums[TILES_M][TILES_N][4] = {};
    fetch(0);
    store(0, 0);
    __syncthreads();
    int place = 0;
#pragma unroll 1
    for (int step = 0; step < k; step += BK) {
        fetch(step + BK);
        const unsigned a_lines = shared + place * PLACE + warp_row * LINE_BYTES;
        const unsigned b_lines = shared + place * PLACE + (BM + warp_col) * LINE_BYTES;
#pragma unroll
        for (int depth = 0; depth < BK; depth += STEP) {
            unsigned a_fragments[TILES_M][4];
#pragma unroll
            for (int i = 0; i < TILES_M; ++i)
                load_a(a_fragments[i], a_lines + 16 * i * LINE_BYTES, depth, lane);
#pragma unroll
            for (int j = 0; j < TILES_N; j += 2) {
                unsigned b_fragments[2][2];
                load_b(b_fragments, b_lines + 8 * j * LINE_BYTES, depth, lane);
#pragma unroll
                for (int i = 0; i < TILES_M; ++i) {
                    ptxlab::mma_m16n8k16<TYPE>(sums[i][j], a_fragments[i], b_fragments[0]);
                    ptxlab::mma_m16n8k16<TYPE>(sums[i][j + 1], a_fragments[i], b_fragments[1]);
                }
            }
        }
        place ^= 1;
        store(step + BK, place);  // where the tiles before these were: read before the last barrier
        __syncthreads();          // the next tiles are there, and these have been read
    }

    const ptxlab::TileTarget<OUT> target(c, m, n, row + warp_row, col + warp_col, alpha, beta);
    ptxlab::write_fragments(sums, target);
}
