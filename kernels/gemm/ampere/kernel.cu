// ampere: everything that mma.sync can have at once. C = alpha * A x B + beta * C, C row-major.
//
// Idea: a block keeps STAGES tiles of A and B in shared memory. cp.async writes them there past the
// registers, 16 bytes a thread; the XOR swizzle lets both that write and ldmatrix's read go without a bank
// conflict; while the tensor cores multiply 32 rows of A, the next 32 are on their way from shared memory,
// and the tiles of up to STAGES - 2 steps later are on their way from global memory. Four things more keep
// the tensor cores from waiting:
//   - Tiles as tall as registers allow, 192x256: a byte from the L2 then serves 110 FLOP, in 128x256 85.
//     Where tiles of one height would leave SMs idle at the end, bands of 128 rows follow those of 192.
//   - Blocks stay: each computes several tiles of C, and the copies of the next begin during this one.
//   - A barrier in two halves: a warp says early that it has read the tile before this one, and that its
//     copies of the next are there; it needs to know that all have said so only when it comes to the next.
//     In between it multiplies. Nobody waits unless a warp is that far behind.
//   - Sums go from registers to C without shared memory: four lanes exchange theirs, and each then holds
//     8 neighbours, 16 bytes.
// Blocks walk C in groups of GROUP bands, so that those which run together share their operands in the L2.
//
// What limits it, on an H200 (2026-11-30; bf16, tn, random data, all sides in turn in one run). Sides that
// draw less power ran at a higher clock, so most numbers are FLOP per clock and SM.
//   - mma.sync itself: a loop of nothing else did 2721, at most 643 of the data sheet's 989 TFLOP/s.
//   - 192x256x64 in 4 stages did 2107 at 4096^3, 2143 at 8192^3 and 1843 at 2048^3, 77, 79 and 68 % of that;
//     in TFLOP/s 447, 437 and 400, which is 82, 85 and 68 %. 3 % are tiles that do not fill the last wave.
//   - Copies and ldmatrix together. 192x256x32 in 8 stages did 2028 at 4096^3; without its copies 2324,
//     without its ldmatrix 2240, without its barrier 2056, without its epilogue 2136, without all four 2595.
//     It is not the L2, a third of whose throughput was used (x64), nor the width of shared memory, half of
//     it. Of 6.7 warps per issued instruction 0.39 waited for ldmatrix and 0.27 for copies or their addresses
//     (x64); without copies (x32) 0.05 and 0.02. The tensor pipe was busy in 80 and in 88 % of the active
//     cycles.
//   - The depth of a stage: lines of 64 bytes take twice the wavefronts of lines of 128 to be written by
//     cp.async. 64 gained 4 % over 32 at 4096^3, and 1 % or nothing at the other two sizes.
//   - Tall tiles gained 4 % at 4096^3 and at 8192^3 (x64; x32: nothing and 3 %), the barrier's halves 4 % and
//     nothing (x64; x32: 2 and 3 %). GROUP (4, 8 or 16) and STAGES (5 or 8) changed less than 1 %.
// Without tall tiles, blocks that stay and the halved barrier it had done 1907, 1958 and 1764.
//
// What the next rung changes (wgmma): the tensor cores read A and B from shared memory by themselves, and
// TMA, one thread, brings them there.
//
// Macros: TYPE (half, __nv_bfloat16), OUT (half, __nv_bfloat16, float), A_K and B_K (1: the operand is
// contiguous in k, 0: in m or n), BN BK (a tile's columns, and depth), TALL_BANDS (how many bands of 192
// rows C begins with), SHORT_BANDS (1: bands of 128 follow, 0: none), STAGES, GROUP, SPLIT (1: the barrier
// in two halves, 0: __syncthreads), and GUARD:
//   0  m, n and k are multiples of the tile: nothing is checked,
//   1  leading dimensions are multiples of 8: what lies outside comes as zeros, 16 bytes at a time,
//   2  any size: elements are copied one by one.

#include <ptxlab/cp_async.cuh>
#include <ptxlab/gemm_edges.cuh>
#include <ptxlab/ldmatrix.cuh>
#include <ptxlab/mbarrier.cuh>
#include <ptxlab/mma_m16n8k16.cuh>

namespace {

using ptxlab::CHUNK;

constexpr int TALL = 192, SHORT = 128;      // rows of a tile
constexpr int WARPS_DOWN = 2, WN = 64;      // a warp has half of a tile's rows, and 64 of its columns
constexpr int WARPS_ACROSS = BN / WN, WARPS = WARPS_DOWN * WARPS_ACROSS;
constexpr int THREADS = 32 * WARPS;
constexpr int STEP = 16, STEPS = BK / STEP;  // of one mma along k
constexpr int TILES_N = WN / 8;              // of one mma, in a warp's tile
constexpr int MOST_M = (TALL_BANDS > 0 ? TALL : SHORT) / WARPS_DOWN / 16;  // downwards, in its tallest one
constexpr int AHEAD = STAGES - 2;            // tiles that are in flight, or waiting, while one is being read


// Tiles consist of slabs: 64 rows of A, or 64 columns of B, BK deep. Its lines in shared memory are what is
// contiguous in global memory: BK elements, or the 64.
constexpr int SLAB = 64, SLAB_BYTES = SLAB * BK * 2;
constexpr int SLABS_A = (TALL_BANDS > 0 ? TALL : SHORT) / SLAB, SLABS = SLABS_A + BN / SLAB;
constexpr int STAGE_BYTES = SLABS * SLAB_BYTES;

template <bool K_CONTIGUOUS>
struct Slab {
    static constexpr int LINES = K_CONTIGUOUS ? SLAB : BK;
    static constexpr int CHUNKS = (K_CONTIGUOUS ? BK : SLAB) / CHUNK;  // of a line
    static constexpr int LINES_AT_ONCE = THREADS / CHUNKS;  // that the block copies, a chunk a thread
    static constexpr int COPIES = LINES / LINES_AT_ONCE;
    static_assert(CHUNKS == 4 || CHUNKS == 8, "lines of 64 or 128 bytes");
    static_assert(LINES % LINES_AT_ONCE == 0 && LINES_AT_ONCE % 8 == 0, "copies are whole, and alike");

    // Where a chunk lies, in bytes. Lines of 64 bytes share their 128 bytes with a neighbour, so the
    // pattern changes every other line; it repeats after 8 lines in any case.
    static __device__ __forceinline__ int place(int line, int chunk)
    {
        const int turn = CHUNKS == 4 ? (line >> 1) & 3 : line & 7;
        return (line * CHUNKS + (chunk ^ turn)) * 16;
    }
};

using Sums = float[MOST_M][TILES_N][4];

// A tile of C: its first element, and how many rows it has.
struct Tile {
    int row, col, rows;
};

__device__ __forceinline__ int count_tiles(int m, int n)
{
    const int across = (n - 1) / BN + 1;
    const int rest = SHORT_BANDS ? (max(m - TALL_BANDS * TALL, 0) + SHORT - 1) / SHORT : 0;
    return (TALL_BANDS + rest) * across;
}

// Tall ones come first, each kind by columns of GROUP bands, one after the other.
__device__ __forceinline__ Tile find_tile(int index, int m, int n)
{
    const int across = (n - 1) / BN + 1;
    const bool tall = TALL_BANDS > 0 && (!SHORT_BANDS || index < TALL_BANDS * across);
    const int rows = tall ? TALL : SHORT, top = tall ? 0 : TALL_BANDS * TALL;
    const int bands = tall ? TALL_BANDS : (m - top - 1) / SHORT + 1;
    if (!tall) index -= TALL_BANDS * across;
    const int first = index / (GROUP * across) * GROUP, within = index % (GROUP * across);
    const int height = min(GROUP, bands - first);  // the last group may be lower
    return {top + (first + within % height) * rows, within / height * BN, rows};
}

__device__ __forceinline__ void store_shared(unsigned target, TYPE value)
{
    const unsigned short bits = *reinterpret_cast<unsigned short*>(&value);
    asm volatile("st.shared.b16 [%0], %1;" ::"r"(target), "h"(bits) : "memory");
}

// This thread's part of one operand's copies.
template <bool K_CONTIGUOUS>
struct Operand {
    using Place = Slab<K_CONTIGUOUS>;
    const TYPE* source;  // of its first chunk in the tile to be copied next
    size_t stride;       // elements between two lines
    int left, left_k;    // elements of the matrix from the tile's corner on, along m or n, and along k

    __device__ __forceinline__ void begin(const TYPE* matrix, int size, int k, int first)
    {
        stride = K_CONTIGUOUS ? k : size;
        source = matrix + (K_CONTIGUOUS ? first * stride : first) + line() * stride + chunk() * CHUNK;
        left = size - first;
        left_k = k;
    }

    __device__ __forceinline__ void advance()
    {
        source += K_CONTIGUOUS ? BK : BK * stride;
        left_k -= BK;
    }

    static __device__ __forceinline__ int line() { return threadIdx.x / Place::CHUNKS; }
    static __device__ __forceinline__ int chunk() { return threadIdx.x % Place::CHUNKS; }

    // The lines that a thread copies are LINES_AT_ONCE apart, which the swizzle's period divides: one
    // addition leads from one place to the next.
    __device__ __forceinline__ void copy_slab(int slab, unsigned target) const
    {
        const TYPE* const from = source + slab * SLAB * (K_CONTIGUOUS ? stride : 1);
#pragma unroll(GUARD == 2 ? 1 : Place::COPIES)
        for (int i = 0; i < Place::COPIES; ++i) {
            const int further = i * Place::LINES_AT_ONCE;
            const int along = slab * SLAB + (K_CONTIGUOUS ? line() + further : chunk() * CHUNK);
            const int depth = K_CONTIGUOUS ? chunk() * CHUNK : line() + further;
            copy_chunk(target + Place::place(line(), chunk()) + further * Place::CHUNKS * 16,
                       from + further * stride, left - along, left_k - depth);
        }
    }

    static __device__ __forceinline__ void copy_chunk(unsigned target, const TYPE* from, int along, int depth)
    {
        if constexpr (GUARD == 0) {
            ptxlab::cp_async_16(target, from);
            return;
        }
        const int lines = K_CONTIGUOUS ? along : depth, width = K_CONTIGUOUS ? depth : along;
        const int elements = lines > 0 ? min(max(width, 0), CHUNK) : 0;
        if constexpr (GUARD == 1) {
            ptxlab::cp_async_16(target, from, 2 * elements);  // what is beyond the end is not read
        } else {
#pragma unroll
            for (int e = 0; e < CHUNK; ++e)
                store_shared(target + 2 * e, e < elements ? from[e] : TYPE(0.0f));
        }
    }
};

// Brings tiles of A and B to shared memory: those of one tile of C along k, then those of the next one that
// is this block's.
struct Copies {
    const TYPE *a, *b;
    int m, n, k;
    unsigned shared;
    Operand<A_K> from_a;
    Operand<B_K> from_b;
    int index, count;  // of the tile of C, and how many there are
    int slabs_a;       // of a tile of A; 0 when there is nothing left to be copied
    int left;          // tiles along k
    int stage = 0;     // that is written next

    __device__ __forceinline__ void begin()
    {
        slabs_a = 0;
        if (index >= count) return;
        const Tile tile = find_tile(index, m, n);
        from_a.begin(a, m, k, tile.row);
        from_b.begin(b, n, k, tile.col);
        slabs_a = tile.rows / SLAB;
        left = (k - 1) / BK + 1;
    }

    __device__ __forceinline__ void copy_slab(int slab)
    {
        const unsigned target = shared + stage * STAGE_BYTES + slab * SLAB_BYTES;
        if (slab < SLABS_A) {
            if (slab < slabs_a) from_a.copy_slab(slab, target);
        } else if (slabs_a > 0) {
            from_b.copy_slab(slab - SLABS_A, target);
        }
    }

    __device__ __forceinline__ void finish()
    {
        ptxlab::cp_async_commit();  // an empty group too: the groups are counted
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        from_a.advance();
        from_b.advance();
        if (--left == 0) {
            index += gridDim.x;
            begin();
        }
    }
};

// What the warps of the block agree on for each tile: that it is there, and that the one before is read.
struct Agreement {
    unsigned barrier;
    unsigned parity = 0;
    bool reached = false;

    // In this warp's name. The next tile must be there, as far as its own copies go.
    __device__ __forceinline__ void say(int lane)
    {
        if constexpr (!SPLIT) return;
        ptxlab::cp_async_wait<AHEAD - 2>();
        __syncwarp();
        if (lane == 0) ptxlab::mbarrier_arrive(barrier);
    }

    // Whether all have said so. The answer takes a while, so it is asked for before it is needed.
    __device__ __forceinline__ void ask()
    {
        if constexpr (SPLIT) reached = wait(barrier, parity);
    }

    __device__ __forceinline__ void reach()
    {
        if constexpr (SPLIT) {
            while (!reached) reached = wait(barrier, parity);
            parity ^= 1;
        } else {
            ptxlab::cp_async_wait<AHEAD - 2>();
            __syncthreads();
        }
    }

private:
    static __device__ __forceinline__ bool wait(unsigned barrier, unsigned parity)
    {
#if __CUDA_ARCH__ >= 900
        return ptxlab::mbarrier_try_wait(barrier, parity);
#else
        return ptxlab::mbarrier_test_wait(barrier, parity);
#endif
    }
};

// What a warp multiplies, on its way from shared memory: 32 rows of A, twice, and 64 columns of B, all a step
// deep. While 32 rows are multiplied the next 32 come. Columns come once the last rows of a step have been
// multiplied with those before.
struct Fragments {
    unsigned a[2][2][4];
    unsigned b[TILES_N][2];

    // Where in a stage this lane points at in the first matrices of a warp, 16 rows of A or 16 columns of B.
    // Matrices of A: rows 0-7, rows 8-15, then the same, 8 further in k; of B: k 0-7, k 8-15, then the next 8
    // columns. A matrix that is contiguous in m or n is transposed on the way.
    static __device__ __forceinline__ int first_a(int warp_row, int lane)
    {
        return further<A_K>(0, 0, warp_row) +
               (A_K ? Slab<A_K>::place(lane % 16, lane / 16)
                    : Slab<A_K>::place(lane / 16 * 8 + lane % 8, lane / 8 % 2));
    }
    static __device__ __forceinline__ int first_b(int warp_col, int lane)
    {
        return SLABS_A * SLAB_BYTES + further<B_K>(0, 0, warp_col) +
               (B_K ? Slab<B_K>::place(lane / 16 * 8 + lane % 8, lane / 8 % 2)
                    : Slab<B_K>::place(lane % 16, lane / 16));
    }

    // `from` is the place that first_a() says, in a stage.
    __device__ __forceinline__ void load_a(int set, unsigned from, int step, int row)
    {
#pragma unroll
        for (int i = 0; i < 2; ++i) ldmatrix<A_K>(a[set][i], further<A_K>(from, step, row + 16 * i));
    }

    __device__ __forceinline__ void load_b(int j, unsigned from, int step)
    {
        unsigned both[4];
        ldmatrix<B_K>(both, further<B_K>(from, step, 8 * j));
        b[j][0] = both[0], b[j][1] = both[1];
        b[j + 1][0] = both[2], b[j + 1][1] = both[3];
    }

private:
    // The same place `first` rows or columns on (a multiple of 16), in another step. Along k, or along the
    // 64 of a slab, the swizzle makes of an addition an exclusive or.
    template <bool K_CONTIGUOUS>
    static __device__ __forceinline__ unsigned further(unsigned from, int step, int first)
    {
        if (K_CONTIGUOUS) return (from ^ step * STEP * 2) + first * BK * 2;
        return (from ^ first % SLAB * 2) + first / SLAB * SLAB_BYTES + step * STEP * SLAB * 2;
    }

    template <bool K_CONTIGUOUS>
    static __device__ __forceinline__ void ldmatrix(unsigned (&r)[4], unsigned address)
    {
        ptxlab::ldmatrix<ptxlab::LdMatrix::m8n8, ptxlab::LdMatrixType::b16, 4, !K_CONTIGUOUS>(r, address);
    }
};

// Four lanes hold two columns each of four n-tiles; afterwards each holds all 8 columns of one n-tile.
__device__ __forceinline__ void exchange(float (&sums)[4][2], int lane)
{
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2) {
#pragma unroll
        for (int t = 0; t < 4; ++t) {
            if (t & bit) continue;
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                float &mine = sums[t][e], &others = sums[t + bit][e];
                const float kept = lane & bit ? others : mine, given = lane & bit ? mine : others;
                const float taken = __shfl_xor_sync(0xffffffff, given, bit);
                mine = lane & bit ? taken : kept;
                others = lane & bit ? kept : taken;
            }
        }
    }
}

// 8 neighbouring elements of C, of which the first `inside` exist.
__device__ __forceinline__ void write_chunk(const float (&sums)[4][2], OUT* to, int inside, bool aligned,
                                            float alpha, float beta)
{
    float values[CHUNK];
#pragma unroll
    for (int e = 0; e < CHUNK; ++e) values[e] = alpha * sums[e / 2][e % 2];
    if (beta != 0.0f) {
#pragma unroll
        for (int e = 0; e < CHUNK; ++e)
            if (e < inside) values[e] += beta * static_cast<float>(to[e]);
    }
    alignas(16) OUT line[CHUNK];
#pragma unroll
    for (int e = 0; e < CHUNK; ++e) line[e] = static_cast<OUT>(values[e]);
    if (inside == CHUNK && aligned) {
#pragma unroll
        for (int part = 0; part < static_cast<int>(sizeof(line) / 16); ++part)
            ptxlab::store_16(reinterpret_cast<uint4*>(to) + part, reinterpret_cast<const uint4*>(line)[part]);
    } else {
#pragma unroll
        for (int e = 0; e < CHUNK; ++e)
            if (e < inside) to[e] = line[e];
    }
}

// A warp's `rows` of sums.
__device__ __forceinline__ void write_out(const Sums& sums, OUT* c, int row, int col, int rows, int m, int n,
                                          float alpha, float beta, int lane)
{
#pragma unroll
    for (int part = 0; part < 2 * MOST_M; ++part) {  // 8 rows
        if (8 * part >= rows) break;
        const int y = row + 8 * part + lane / 4;
#pragma unroll
        for (int j = 0; j < TILES_N; j += 4) {
            float chunk[4][2];
#pragma unroll
            for (int e = 0; e < CHUNK; ++e)
                chunk[e / 2][e % 2] = sums[part / 2][j + e / 2][part % 2 * 2 + e % 2];
            exchange(chunk, lane);
            const int x = col + 8 * (j + lane % 4);
            const int inside = GUARD == 0 ? CHUNK : y < m ? min(max(n - x, 0), CHUNK) : 0;
            const bool aligned = GUARD == 0 || n % CHUNK == 0;
            write_chunk(chunk, c + static_cast<size_t>(y) * n + x, inside, aligned, alpha, beta);
        }
    }
}

// Adds up all of a tile of C that has WARPS_DOWN * 16 * TILES_M rows. `stage` is that of its first tiles of A
// and B, which are there; on return, that of the next tile's.
template <int TILES_M>
__device__ __forceinline__ void multiply(Sums& sums, Copies& copies, Agreement& agreement, int& stage)
{
    constexpr int PAIRS = TILES_M / 2, SLOTS = STEPS * PAIRS;  // of 32 rows in a step, and in a tile
    static_assert(SLOTS % 2 == 0 && SLABS <= 2 * SLOTS, "sets take turns; two slabs at most for each");
    static_assert(A_K || 16 * TILES_M % SLAB == 0, "a warp's rows of such an A begin with a slab");
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_row = warp / WARPS_ACROSS * 16 * TILES_M, warp_col = warp % WARPS_ACROSS * WN;
    const unsigned first_a = copies.shared + Fragments::first_a(warp_row, lane);
    const unsigned first_b = copies.shared + Fragments::first_b(warp_col, lane);

    Fragments held;
    unsigned from_a = first_a + stage * STAGE_BYTES, from_b = first_b + stage * STAGE_BYTES;
    held.load_a(0, from_a, 0, 0);
#pragma unroll
    for (int j = 0; j < TILES_N; j += 2) held.load_b(j, from_b, 0);

    const int tiles = (copies.k - 1) / BK + 1;
#pragma unroll 1
    for (int t = 0; t < tiles; ++t) {
#pragma unroll
        for (int slot = 0; slot < SLOTS; ++slot) {
            const int step = slot / PAIRS, pair = slot % PAIRS;
            const bool last = pair == PAIRS - 1;
            const int next_step = last ? (step + 1) % STEPS : step;
            if (slot == SLOTS / 4) agreement.say(lane);
            if (slot == SLOTS - 2) agreement.ask();
            if (slot == SLOTS - 1) {
                agreement.reach();
                stage = stage + 1 == STAGES ? 0 : stage + 1;
                from_a = first_a + stage * STAGE_BYTES, from_b = first_b + stage * STAGE_BYTES;
            }
            held.load_a((slot + 1) % 2, from_a, next_step, last ? 0 : 32 * (pair + 1));
#pragma unroll
            for (int j = 0; j < TILES_N; j += 2) {
#pragma unroll
                for (int x = 0; x < 4; ++x) {  // there and back: b[j + 1] stays in use
                    const int i = x / 2, right = i ^ x % 2;
                    ptxlab::mma_m16n8k16<TYPE>(sums[2 * pair + i][j + right], held.a[slot % 2][i],
                                               held.b[j + right]);
                }
                if (last) held.load_b(j, from_b, next_step);
            }
#pragma unroll
            for (int slab = 2 * slot; slab < 2 * slot + 2; ++slab)
                if (slab < SLABS) copies.copy_slab(slab);
        }
        copies.finish();
    }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS, THREADS > 128 ? 1 : 2)
KERNEL(const TYPE* a, const TYPE* b, OUT* c, int m, int n, int k, float alpha, float beta)
{
    extern __shared__ __align__(128) unsigned char memory[];
    const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(memory));
    Agreement agreement{shared + STAGES * STAGE_BYTES};
    if (SPLIT && threadIdx.x == 0) ptxlab::mbarrier_init(agreement.barrier, WARPS);

    Copies copies{a, b, m, n, k, shared};
    copies.index = blockIdx.x;
    copies.count = count_tiles(m, n);
    copies.begin();
#pragma unroll 1
    for (int stage = 0; stage < AHEAD; ++stage) {
#pragma unroll
        for (int slab = 0; slab < SLABS; ++slab) copies.copy_slab(slab);
        copies.finish();
    }
    ptxlab::cp_async_wait<AHEAD - 1>();
    __syncthreads();  // the first tile is there, and so is the barrier

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int stage = 0;
#pragma unroll 1
    for (int index = blockIdx.x; index < copies.count; index += gridDim.x) {
        const Tile tile = find_tile(index, m, n);
        Sums sums = {};
        if (TALL_BANDS > 0 && tile.rows == TALL)
            multiply<MOST_M>(sums, copies, agreement, stage);
        else if (SHORT_BANDS)
            multiply<SHORT / WARPS_DOWN / 16>(sums, copies, agreement, stage);
        const int rows = tile.rows / WARPS_DOWN;  // of a warp
        const int row = tile.row + warp / WARPS_ACROSS * rows, col = tile.col + warp % WARPS_ACROSS * WN;
        write_out(sums, c, row, col, rows, m, n, alpha, beta, lane);
    }
    ptxlab::cp_async_wait<0>();
}
