// wmma-warptile: a warp owns a large tile, so that what it loads is used often; copies go past the registers.
// C = alpha A x B + beta C, C row-major.
//
// Idea: in wmma-dbuf a warp loads two fragments for one product of 16x16x16. Here it owns WM x WN of C, say
// 64x64: it loads 4 fragments of A and 4 of B, and multiplies each with each, 16 products of 8 loads. The
// shared-memory port, which was the limit, has a quarter of the work for the same FLOP. The block's tile
// grows with the warps' (128x256), and with it how often a byte from the L2 is used: 85 FLOP a byte instead
// of 32. The sums take WM * WN / 32 registers of a thread, 128 for 64x64; the next tiles no longer find room
// beside them. So cp.async writes them straight into shared memory, where STAGES of them have their place:
// one is read, the others are on their way. A step takes BK of k: a deeper one has fewer barriers for the
// same work, and needs more memory.
//
// Fragments come ahead, too: while 16 rows are multiplied, the next 16 are loaded, and the columns that come
// 16 deeper. Every instruction beside the products costs some of their time (ampere says how much), so loads
// have their places as constants, and pointers are stepped on: of 230 instructions in a step of 128 HMMA, 32
// loads and 12 copies 58 do something else. (With places worked out for each load it were 135, and 12 % fewer
// FLOP per clock would be expected.)
//
// What limits it: mma.sync itself; what stands beside it; and one block an SM, whose tensor cores stand still
// while it begins and ends. By the three times below a step takes 1950 cycles, of which products alone would
// take 1540; and a tile takes 16,000 to 18,000 beside its steps, for its launch, its first copies and C. At
// 2048^3, 128 tiles of 32 steps on 132 SMs, that is a fifth of the time, at 8192^3 6 %. (By ncu at 4096^3 the
// tensor cores work in 69 % of the cycles, the L2 is used to 68 % of its throughput, the shared-memory port
// to 54 %.) Blocks that stay, as ampere's do, would copy for the next tile meanwhile. Lines are padded, so a
// line of a copy reaches into two of shared memory: one conflict for each cp.async was counted, where ampere,
// whose lines are swizzled, has none.
//   The aim was 70 % of what mma.sync can do from 1024^3 on. Such tiles are 32 at 1024^3, and three of four
// SMs have none. Of 72 blocks, warps, depths and numbers of stages that were timed there with bf16, 128
// blocks of 64x128, with warps of 32x32 and four stages, are the fastest. In the recorded runs they reach 168
// TFLOP/s (f16 155) instead of 84, 28 % of the ceiling beside them (f16 26); cuBLASLt had 60 % of it there.
// Products alone would take 3.6 of their 12.8 us, the shared-memory port, which smaller warps ask twice as
// often, 6.4; the rest is launch, first copies, and C. So 70 % is out of reach at 1024^3; at 2048^3 it is
// missed by what is said above.
//
// Measured (H200, 2026-11-30; bf16 tn, normal values, cold, all rungs in turn in one run): at 2048^3, 4096^3
// and 8192^3 369, 404 and 426 TFLOP/s; 53, 52 and 53 % of the faster library; 61, 70 and 74 % of the ceiling
// of mma-sync; over wmma-dbuf +383.7, +405.5 and +415.8 %. With f16 at 2048^3, 4096^3 and 8192^3 359, 394 and
// 414 TFLOP/s; 53, 54 and 55 % of the faster library; 63, 72 and 77 % of the ceiling of mma-sync; over
// wmma-dbuf +278.7, +289.8 and +290.0 %.
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
constexpr int TILES_M = WM / FRAGMENT, TILES_N = WN / FRAGMENT;  // of wmma, in a warp's tile
constexpr int DEPTHS = BK / FRAGMENT;                            // of wmma, in a step
constexpr int PARTS = DEPTHS > 2 ? 2 : 1;                        // in which the copies of a step are made
static_assert(TILES_M % 2 == 0, "two sets of 16 rows take turns");

template <typename Layout>
constexpr bool by_rows = false;
template <>
constexpr bool by_rows<wmma::row_major> = true;

template <typename, typename>
constexpr bool is_same = false;
template <typename T>
constexpr bool is_same<T, T> = true;

// A tile of ROWS x COLS of an operand in shared memory, its lines contiguous as they are in global memory and
// padded by 16 bytes (see wmma-tiled); and this thread's part in copying it. ALONG_K: lines run along k.
template <typename Layout, bool ALONG_K, int ROWS, int COLS>
struct Tile {
    static constexpr int LINES = by_rows<Layout> ? ROWS : COLS, WIDTH = by_rows<Layout> ? COLS : ROWS;
    static constexpr int PITCH = WIDTH + ptxlab::CHUNK, CHUNKS = WIDTH / ptxlab::CHUNK;  // of a line
    static constexpr int APART = THREADS / CHUNKS;       // lines from one chunk of a thread to its next
    static constexpr int COPIES = LINES / APART / PARTS;  // of a thread, for a part of a tile
    static constexpr unsigned BYTES = LINES * PITCH * sizeof(TYPE);
    static_assert(LINES % (APART * PARTS) == 0, "every thread copies as much, and parts are alike");

    const TYPE *first, *next;  // this thread's first chunk of the tile, and the one that it copies next
    size_t stride;
    int lines, width;  // what is left of the matrix from the first one on
    unsigned target;   // the place of the first one

    // `tiles` is where such tiles have their place.
    __device__ __forceinline__ Tile(const TYPE* matrix, int rows, int cols, int row, int col, unsigned tiles)
        : stride(by_rows<Layout> ? cols : rows)
    {
        const int own_line = threadIdx.x / CHUNKS, own_first = threadIdx.x % CHUNKS * ptxlab::CHUNK;
        const int line = (by_rows<Layout> ? row : col) + own_line;
        const int along = (by_rows<Layout> ? col : row) + own_first;
        first = next = matrix + line * stride + along;
        lines = (by_rows<Layout> ? rows : cols) - line;
        width = static_cast<int>(stride) - along;
        target = tiles + sizeof(TYPE) * (own_line * PITCH + own_first);
    }

    // Begins to bring a part of the tile to its place, `offset` bytes on.
    __device__ __forceinline__ void copy(int part, unsigned offset)
    {
#pragma unroll(ALIGNED ? COPIES : 1)
        for (int i = part * COPIES; i < (part + 1) * COPIES; ++i) {
            const int inside = i * APART < lines ? width : 0;
            copy_chunk(target + offset + i * APART * PITCH * sizeof(TYPE), inside);
            // The compiler must not see through this addition: it would multiply anew for each chunk.
            asm("add.s64 %0, %0, %1;" : "+l"(next) : "l"(APART * stride * sizeof(TYPE)));
        }
    }

    // To the next tile along k, once all parts of this one are copied.
    __device__ __forceinline__ void advance()
    {
        first += ALONG_K ? BK : BK * stride;
        next = first;
        (ALONG_K ? width : lines) -= BK;
    }

    // Where the element at (row, col) of the tile lies, in bytes.
    static __device__ constexpr int place(int row, int col)
    {
        return (by_rows<Layout> ? row * PITCH + col : col * PITCH + row) * sizeof(TYPE);
    }

private:
    __device__ __forceinline__ void copy_chunk(unsigned to, int inside) const
    {
        if constexpr (ALIGNED) {
            ptxlab::cp_async_16(to, next, inside > 0 ? 16 : 0);
        } else {
#pragma unroll
            for (int e = 0; e < ptxlab::CHUNK; ++e)
                ptxlab::store_shared(to + e * sizeof(TYPE), e < inside ? next[e] : TYPE(0.0f));
        }
    }
};

using FragmentA = wmma::fragment<wmma::matrix_a, FRAGMENT, FRAGMENT, FRAGMENT, TYPE, wmma::A_LAYOUT>;
using FragmentB = wmma::fragment<wmma::matrix_b, FRAGMENT, FRAGMENT, FRAGMENT, TYPE, wmma::B_LAYOUT>;
using TileA = Tile<wmma::A_LAYOUT, by_rows<wmma::A_LAYOUT>, BM, BK>;
using TileB = Tile<wmma::B_LAYOUT, !by_rows<wmma::B_LAYOUT>, BK, BN>;
constexpr unsigned PLACE = TileA::BYTES + TileB::BYTES;  // of A's and B's tiles together

// The PTX instruction that load_matrix_sync stands for, told that the matrix is in shared memory, and how far
// behind `from`, as a constant: it becomes one ldmatrix. load_matrix_sync becomes many small loads for bf16,
// and for f16 works out each address anew (NVRTC 13.0).
#define LOAD(operand, layout)                                                                               \
    if constexpr (is_same<TYPE, half>)                                                                      \
        asm volatile("wmma.load." operand ".sync.aligned." layout ".m16n16k16.shared.f16"                   \
                     " {%0, %1, %2, %3, %4, %5, %6, %7}, [%8+%9], %10;"                                     \
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]), "=r"(r[4]), "=r"(r[5]), "=r"(r[6]),  \
                       "=r"(r[7])                                                                           \
                     : "r"(from), "n"(FURTHER), "n"(PITCH)                                                  \
                     : "memory");                                                                           \
    else                                                                                                    \
        asm volatile("wmma.load." operand ".sync.aligned." layout ".m16n16k16.shared.bf16"                  \
                     " {%0, %1, %2, %3}, [%4+%5], %6;"                                                      \
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                                       \
                     : "r"(from), "n"(FURTHER), "n"(PITCH)                                                  \
                     : "memory")

template <int PITCH, int FURTHER>
__device__ __forceinline__ void load(FragmentA& fragment, unsigned from)
{
    unsigned* const r = reinterpret_cast<unsigned*>(fragment.x);
    if constexpr (by_rows<wmma::A_LAYOUT>)
        LOAD("a", "row");
    else
        LOAD("a", "col");
}

template <int PITCH, int FURTHER>
__device__ __forceinline__ void load(FragmentB& fragment, unsigned from)
{
    unsigned* const r = reinterpret_cast<unsigned*>(fragment.x);
    if constexpr (by_rows<wmma::B_LAYOUT>)
        LOAD("b", "row");
    else
        LOAD("b", "col");
}
#undef LOAD

using Sums = wmma::fragment<wmma::accumulator, FRAGMENT, FRAGMENT, FRAGMENT, ACCUMULATE>[TILES_M][TILES_N];

// What a warp works with. Its loops over fragments are recursions, because `load` needs their places as
// constants.
struct Warp {
    TileA tile_a;
    TileB tile_b;
    unsigned from_a, from_b;            // its first row and column in the first tiles
    unsigned writing = 0, reading = 0;  // where the tiles begin that are copied, and multiplied
    FragmentA rows[2];
    FragmentB columns[2][TILES_N];

    static __device__ __forceinline__ unsigned turn(unsigned place)
    {
        return place == (STAGES - 1) * PLACE ? 0 : place + PLACE;
    }

    // Past the end of k it brings zeros.
    __device__ __forceinline__ void copy(int part)
    {
        tile_a.copy(part, writing);
        tile_b.copy(part, writing);
        if (part < PARTS - 1) return;
        ptxlab::cp_async_commit();
        tile_a.advance();
        tile_b.advance();
        writing = turn(writing);
    }

    // Columns J to END - 1, 16 deep from DEPTH * 16 on.
    template <int DEPTH, int J, int END>
    __device__ __forceinline__ void load_columns(int set)
    {
        if constexpr (J < END) {
            constexpr int place = TileB::place(FRAGMENT * DEPTH, FRAGMENT * J);
            load<TileB::PITCH, place>(columns[set][J], from_b + reading);
            load_columns<DEPTH, J + 1, END>(set);
        }
    }

    // Multiplies what is left of a step, from the INDEX-th on of all its 16 rows 16 deep.
    template <int INDEX>
    __device__ __forceinline__ void multiply(Sums& sums)
    {
        constexpr int END = DEPTHS * TILES_M, NEXT = (INDEX + 1) % END;
        if constexpr (INDEX < END) {
            constexpr int depth = INDEX / TILES_M, next_depth = (depth + 1) % DEPTHS, i = INDEX % TILES_M;
            if (i == 0 && depth % (DEPTHS / PARTS) == 0) copy(depth / (DEPTHS / PARTS));
            if (NEXT == 0) {  // the next tiles are there, and all fragments of these have been loaded
                ptxlab::cp_async_wait<STAGES - 2>();
                __syncthreads();
                reading = turn(reading);
            }
            constexpr int place = TileA::place(FRAGMENT * (NEXT % TILES_M), FRAGMENT * (NEXT / TILES_M));
            load<TileA::PITCH, place>(rows[(INDEX + 1) % 2], from_a + reading);
            if constexpr (next_depth > 0)
                load_columns<next_depth, i * TILES_N / TILES_M, (i + 1) * TILES_N / TILES_M>((depth + 1) % 2);
            else if constexpr (NEXT == 0)
                load_columns<0, 0, TILES_N>((depth + 1) % 2);
#pragma unroll
            for (int j = 0; j < TILES_N; ++j)
                wmma::mma_sync(sums[i][j], rows[INDEX % 2], columns[depth % 2][j], sums[i][j]);
            multiply<INDEX + 1>(sums);
        }
    }
};

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS)
KERNEL(const TYPE* a, const TYPE* b, OUT* c, int m, int n, int k, float alpha, float beta)
{
    extern __shared__ __align__(128) unsigned char memory[];
    const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(memory));

    const int across = (n - 1) / BN + 1;
    const int row = static_cast<int>(blockIdx.x / across) * BM;
    const int col = static_cast<int>(blockIdx.x % across) * BN;
    const int warp = threadIdx.x / 32;
    const int warp_row = warp / WARPS_ACROSS * WM, warp_col = warp % WARPS_ACROSS * WN;

    Sums sums;
#pragma unroll
    for (int i = 0; i < TILES_M; ++i)
#pragma unroll
        for (int j = 0; j < TILES_N; ++j) wmma::fill_fragment(sums[i][j], ACCUMULATE(0.0f));

    Warp own{TileA(a, m, k, row, 0, shared), TileB(b, k, n, 0, col, shared + TileA::BYTES),
             shared + TileA::place(warp_row, 0), shared + TileA::BYTES + TileB::place(0, warp_col)};
    for (int tiles = 0; tiles < STAGES - 1; ++tiles)
#pragma unroll
        for (int part = 0; part < PARTS; ++part) own.copy(part);
    ptxlab::cp_async_wait<STAGES - 2>();
    __syncthreads();

    load<TileA::PITCH, 0>(own.rows[0], own.from_a);
    own.load_columns<0, 0, TILES_N>(0);
#pragma unroll 1
    for (int step = 0; step < k; step += BK) {
        own.multiply<0>(sums);
#pragma unroll
        for (int j = 0; j < TILES_N; ++j)
            if (DEPTHS % 2) own.columns[0][j] = own.columns[1][j];
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
