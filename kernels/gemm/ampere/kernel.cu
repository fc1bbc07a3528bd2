// ampere: everything that mma.sync can have at once. C = alpha * A x B + beta * C, C row-major.
//
// Idea: a block keeps STAGES tiles of A and B in shared memory, in flight at the same time. cp.async writes
// them there past the registers, 16 bytes a thread; the XOR swizzle lets both that write and ldmatrix's
// read go without a bank conflict; while the tensor cores multiply one k-step, the fragments of the next
// are on their way from shared memory (two sets of registers), and the tile of STAGES - 1 steps later is on
// its way from global memory. Blocks walk C in groups of GROUP tile rows, so that those which run at the
// same time share their operands in the L2.
//
// What limits it: on Hopper mma.sync itself, which on an H200 reached at most 643 of the data sheet's 989
// TFLOP/s (a loop without loads, 2026-11-30); and the L2, from which a tile of 128x256 takes a byte for every
// 85 FLOP. An earlier version of this kernel did 480 TFLOP/s at 4096^3; without the copies it was 532,
// without the ldmatrix 476: fragments cost nothing, copies a tenth (2026-11-30).
//
// What the next rung changes (wgmma): the tensor cores read A and B from shared memory by themselves, and
// TMA, one thread, brings them there.
//
// Macros: TYPE (half, __nv_bfloat16), OUT (half, __nv_bfloat16, float), A_K and B_K (1: the operand is
// contiguous in k, 0: in m or n), BM BN BK (the block's tile), WM WN (a warp's), STAGES, GROUP, and GUARD:
//   0  m, n and k are multiples of the tile: nothing is checked,
//   1  leading dimensions are multiples of 8: what lies outside comes as zeros, 16 bytes at a time,
//   2  any size: elements are copied one by one.

#include <ptxlab/cp_async.cuh>
#include <ptxlab/ldmatrix.cuh>
#include <ptxlab/mma_m16n8k16.cuh>

namespace {

constexpr int WARPS = (BM / WM) * (BN / WN);
constexpr int THREADS = 32 * WARPS;
constexpr int CHUNK = 8;       // elements in 16 bytes, the unit of copies and of the swizzle
constexpr int STEP = 16;       // of one mma along k
constexpr int STEPS = BK / STEP;
constexpr int TILES_M = WM / 16, TILES_N = WN / 8;  // of one mma, in a warp's tile

constexpr int AHEAD = STAGES - 2;  // tiles that are in flight, or waiting, while one is being read

static_assert(BK % STEP == 0 && STEPS % 2 == 0 && TILES_M % 2 == 0, "two sets of fragments take turns");
static_assert(TILES_N % 2 == 0, "one ldmatrix.x4 brings two n-tiles of B");

// A tile of one operand in shared memory: LINES lines of WIDTH elements, as they are contiguous in global
// memory. SIZE is the tile's extent in m or n.
template <int SIZE, bool K_CONTIGUOUS>
struct Tile {
    static constexpr int LINES = K_CONTIGUOUS ? SIZE : BK;
    static constexpr int CHUNKS = (K_CONTIGUOUS ? BK : SIZE) / CHUNK;
    static constexpr int BYTES = SIZE * BK * 2;
    static constexpr int LINES_AT_ONCE = THREADS / CHUNKS;  // that the block copies, a chunk a thread
    static constexpr int COPIES = LINES / LINES_AT_ONCE;
    static_assert(CHUNKS == 4 || CHUNKS % 8 == 0, "lines of 64 bytes, or of multiples of 128");
    static_assert(LINES % LINES_AT_ONCE == 0 && LINES_AT_ONCE % 8 == 0, "copies are whole, and alike");

    // Where a chunk lies, in bytes. Lines of 64 bytes share their 128 bytes with a neighbour, so the
    // pattern changes every other line; it repeats after 8 lines in any case.
    static __device__ __forceinline__ int place(int line, int chunk)
    {
        const int turn = CHUNKS == 4 ? (line >> 1) & 3 : line & 7;
        return (line * CHUNKS + (chunk ^ turn)) * 16;
    }
};

using TileA = Tile<BM, A_K>;
using TileB = Tile<BN, B_K>;
constexpr int STAGE_BYTES = TileA::BYTES + TileB::BYTES;

__device__ __forceinline__ void store_shared(unsigned target, TYPE value)
{
    const unsigned short bits = *reinterpret_cast<unsigned short*>(&value);
    asm volatile("st.shared.b16 [%0], %1;" ::"r"(target), "h"(bits) : "memory");
}

// Brings the tiles of one operand to shared memory, one after the other along k.
template <int SIZE, bool K_CONTIGUOUS>
struct Copier {
    using Place = Tile<SIZE, K_CONTIGUOUS>;
    const TYPE* source;  // of this thread's first chunk in the tile to be copied next
    size_t line_stride;  // elements between two lines
    int line, chunk;     // of the first chunk, in the tile
    int lines, width;    // what is left of the matrix from the tile's corner on
    int offset;          // where the first chunk lands, in bytes

    __device__ __forceinline__ Copier(const TYPE* matrix, int size, int k, int first)
    {
        line = threadIdx.x / Place::CHUNKS;
        chunk = threadIdx.x % Place::CHUNKS;
        line_stride = K_CONTIGUOUS ? k : size;
        source = matrix + (K_CONTIGUOUS ? first * line_stride : first) + line * line_stride + chunk * CHUNK;
        lines = K_CONTIGUOUS ? size - first : k;
        width = K_CONTIGUOUS ? k : size - first;
        offset = Place::place(line, chunk);
    }

    // Copies the next tile; the lines that a thread copies are LINES_AT_ONCE apart, which the swizzle's
    // period divides: one addition leads from one place to the next.
    __device__ __forceinline__ void copy(unsigned shared)
    {
#pragma unroll(GUARD == 2 ? 1 : Place::COPIES)
        for (int i = 0; i < Place::COPIES; ++i) {
            const unsigned target = shared + offset + i * Place::LINES_AT_ONCE * Place::CHUNKS * 16;
            copy_chunk(target, source + i * Place::LINES_AT_ONCE * line_stride,
                       line + i * Place::LINES_AT_ONCE);
        }
        source += K_CONTIGUOUS ? BK : BK * line_stride;
        (K_CONTIGUOUS ? width : lines) -= BK;
    }

    __device__ __forceinline__ void copy_chunk(unsigned target, const TYPE* from, int at)
    {
        if constexpr (GUARD == 0) {
            ptxlab::cp_async_16(target, from);
            return;
        }
        const int elements = at < lines ? min(max(width - chunk * CHUNK, 0), CHUNK) : 0;
        if constexpr (GUARD == 1) {
            ptxlab::cp_async_16(target, from, 2 * elements);  // what is beyond the end is not read
        } else {
#pragma unroll
            for (int e = 0; e < CHUNK; ++e)
                store_shared(target + 2 * e, e < elements ? from[e] : TYPE(0.0f));
        }
    }
};

// What a warp multiplies, on its way from shared memory. 16 rows of A are used for TILES_N mma and then gone,
// so two sets of them suffice; B stays for a whole k-step, so there are two sets of all of it.
// A matrix of 8x8 that is contiguous in m or n is transposed on the way.
struct Fragments {
    unsigned a[2][4];
    unsigned b[2][TILES_N][2];

    // Matrices: rows 0-7, rows 8-15, then the same, 8 further in k.
    __device__ __forceinline__ void load_a(int set, unsigned shared, int step, int row, int lane)
    {
        using namespace ptxlab;
        const int low = lane % 8, middle = lane / 8 % 2, high = lane / 16, k = step * STEP;
        const int place = A_K ? TileA::place(row + 8 * middle + low, k / CHUNK + high)
                              : TileA::place(k + 8 * high + low, row / CHUNK + middle);
        ldmatrix<LdMatrix::m8n8, LdMatrixType::b16, 4, !A_K>(a[set], shared + place);
    }

    // Two n-tiles at once. Matrices: k 0-7, k 8-15, then the same of the next tile.
    __device__ __forceinline__ void load_b(int set, int j, unsigned shared, int step, int col, int lane)
    {
        using namespace ptxlab;
        const int low = lane % 8, middle = lane / 8 % 2, high = lane / 16, k = step * STEP, n = col + 8 * j;
        const int place = B_K ? TileB::place(n + 8 * high + low, k / CHUNK + middle)
                              : TileB::place(k + 8 * middle + low, n / CHUNK + high);
        unsigned both[4];
        ldmatrix<LdMatrix::m8n8, LdMatrixType::b16, 4, !B_K>(both, shared + TileA::BYTES + place);
        b[set][j][0] = both[0], b[set][j][1] = both[1];
        b[set][j + 1][0] = both[2], b[set][j + 1][1] = both[3];
    }
};

// Which tile of C a block computes: columns of GROUP tile rows, one after the other.
__device__ __forceinline__ void find_tile(int m, int n, int& row, int& col)
{
    const int down = (m - 1) / BM + 1, across = (n - 1) / BN + 1;
    const int first = blockIdx.x / (GROUP * across) * GROUP;
    const int height = min(GROUP, down - first);
    const int within = blockIdx.x % (GROUP * across);
    row = (first + within % height) * BM;
    col = within / height * BN;
}

__device__ __forceinline__ float scaled(float sum, float alpha, float beta, const OUT* c)
{
    return beta == 0.0f ? alpha * sum : alpha * sum + beta * static_cast<float>(*c);
}

// Writes a warp's tile, 16 rows at a time: through shared memory, where a lane finds 8 elements side by
// side, which it converts and writes at once. Columns are padded by 8, and rows do not meet in a bank.
__device__ __forceinline__ void write_out(const float (&sums)[TILES_M][TILES_N][4], float* staging, OUT* c,
                                          int row, int col, int m, int n, float alpha, float beta, int lane)
{
    constexpr int PITCH = WN + 8;
    constexpr int PER_ROW = WN / CHUNK;  // lanes that share a row
#pragma unroll
    for (int i = 0; i < TILES_M; ++i) {
        __syncwarp();
#pragma unroll
        for (int j = 0; j < TILES_N; ++j) {
            float* at = staging + lane / 4 * PITCH + 8 * j + lane % 4 * 2;
            *reinterpret_cast<float2*>(at) = make_float2(sums[i][j][0], sums[i][j][1]);
            *reinterpret_cast<float2*>(at + 8 * PITCH) = make_float2(sums[i][j][2], sums[i][j][3]);
        }
        __syncwarp();
#pragma unroll 1
        for (int piece = lane; piece < 16 * PER_ROW; piece += 32) {
            const int y = row + 16 * i + piece / PER_ROW, x = col + piece % PER_ROW * CHUNK;
            const float* from = staging + piece / PER_ROW * PITCH + piece % PER_ROW * CHUNK;
            OUT* to = c + static_cast<size_t>(y) * n + x;
            const int elements = GUARD == 0 ? CHUNK : y < m ? min(max(n - x, 0), CHUNK) : 0;
            alignas(16) OUT line[CHUNK];
#pragma unroll
            for (int e = 0; e < CHUNK; ++e)
                if (GUARD == 0 || e < elements)
                    line[e] = static_cast<OUT>(scaled(from[e], alpha, beta, to + e));
            if (GUARD == 0 || (elements == CHUNK && n % CHUNK == 0)) {
#pragma unroll
                for (int part = 0; part < static_cast<int>(sizeof(line) / 16); ++part)
                    reinterpret_cast<uint4*>(to)[part] = reinterpret_cast<const uint4*>(line)[part];
            } else {
#pragma unroll
                for (int e = 0; e < CHUNK; ++e)
                    if (e < elements) to[e] = line[e];
            }
        }
    }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS, 1)
KERNEL(const TYPE* a, const TYPE* b, OUT* c, int m, int n, int k, float alpha, float beta)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(memory));
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_row = warp / (BN / WN) * WM, warp_col = warp % (BN / WN) * WN;
    int row, col;
    find_tile(m, n, row, col);

    Copier<BM, A_K> copy_a(a, m, k, row);
    Copier<BN, B_K> copy_b(b, n, k, col);
    const int tiles = (k - 1) / BK + 1;
    int copied = 0;  // tiles whose copy has been started
    const auto start_copy = [&](int stage) {
        if (copied < tiles) {
            copy_a.copy(shared + stage * STAGE_BYTES);
            copy_b.copy(shared + stage * STAGE_BYTES + TileA::BYTES);
        }
        ++copied;
        ptxlab::cp_async_commit();  // an empty group too: the groups are counted
    };
    for (int stage = 0; stage < AHEAD; ++stage) start_copy(stage);

    float sums[TILES_M][TILES_N][4] = {};
    Fragments held;
    int reading = 0, writing = AHEAD;
    ptxlab::cp_async_wait<AHEAD - 1>();
    __syncthreads();
    held.load_a(0, shared, 0, warp_row, lane);
#pragma unroll
    for (int j = 0; j < TILES_N; j += 2) held.load_b(0, j, shared, 0, warp_col, lane);

    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            unsigned here = shared + reading * STAGE_BYTES;  // this step's tile, and that of the next step
            if (step == STEPS - 1) {
                ptxlab::cp_async_wait<AHEAD - 1>();
                __syncthreads();  // the next tile is there for all warps, and the one before this is read
                reading = reading + 1 == STAGES ? 0 : reading + 1;
            }
            const unsigned next = shared + reading * STAGE_BYTES;
#pragma unroll
            for (int i = 0; i < TILES_M; ++i) {
                if (i + 1 < TILES_M)
                    held.load_a((i + 1) % 2, here, step, warp_row + 16 * (i + 1), lane);
                else
                    held.load_a(0, next, (step + 1) % STEPS, warp_row, lane);
#pragma unroll
                for (int j = 2 * i; j < TILES_N; j += 2 * TILES_M)
                    held.load_b((step + 1) % 2, j, next, (step + 1) % STEPS, warp_col, lane);
#pragma unroll
                for (int n = 0; n < TILES_N; ++n) {
                    const int j = i % 2 ? TILES_N - 1 - n : n;  // there and back: b[j] stays in use
                    ptxlab::mma_m16n8k16<TYPE>(sums[i][j], held.a[i % 2], held.b[step % 2][j]);
                }
            }
            if (step == 0) {
                start_copy(writing);
                writing = writing + 1 == STAGES ? 0 : writing + 1;
            }
        }
    }

    ptxlab::cp_async_wait<0>();
    __syncthreads();  // the tiles have been read: their place serves the epilogue
    float* staging = reinterpret_cast<float*>(memory) + warp * 16 * (WN + 8);
    write_out(sums, staging, c, row + warp_row, col + warp_col, m, n, alpha, beta, lane);
}
