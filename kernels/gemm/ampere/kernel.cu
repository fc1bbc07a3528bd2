// ampere: everything that mma.sync can have at once. C = alpha * A x B + beta * C, C row-major.
//
// Idea: a block keeps STAGES tiles of A and B in shared memory. cp.async writes them there past the
// registers, 16 bytes a thread; the XOR swizzle lets both that write and ldmatrix's read go without a bank
// conflict. While one tile is multiplied, STAGES - 1 others are there or on their way from global memory; and
// while the fragments of 16 of k are multiplied, those of the next 16 are on their way from shared memory:
// registers hold two sets. Three things more keep the tensor cores from waiting:
//   - Loads and copies are spread between the products, a load after every second one of the first half of a
//     step, copies in the second half: one at a time finds room, where many in a row would hold products up.
//   - Blocks stay: each computes several tiles of C, and the copies of the next begin during this one.
//   - Sums go from registers to C without shared memory: four lanes exchange theirs, and each then holds
//     8 neighbours, 16 bytes.
// Blocks walk C in groups of GROUP bands, so that those which run together share their operands in the L2.
//
// What limits it: mma.sync itself; and each instruction beside the products, which takes some of their time
// although it runs elsewhere. Cycles from one HMMA to the next, of a partition of an SM with two warps, on an
// H200 (2026-11-30): 6.05 when there is nothing else to do; 6.29 with 8 ldmatrix for 32 HMMA, as here; 6.54
// with 4 cp.async for them; 7.05 with both; 6.74 with one integer addition for each HMMA; 6.95 with 4 loads
// from global and 4 stores to shared memory instead of cp.async. So the loop has as few other instructions as
// could be had, some 70 for 128 HMMA, 32 ldmatrix and 12 cp.async: pointers are stepped on, not multiplied,
// and what a place depends on is a constant, or added once a tile. Added up for a warp and a tile these are
// 774 cycles for products, 31 for ldmatrix, 47 for copies and 50 or so for the rest: 86 % are products, with
// 97 % for the last wave 83 %. The 95 % that were the aim (90 at 2048^3) would leave 40 cycles for all that
// is no product.
//   Nothing else is near its limit: by ncu at 4096^3 the L2 is used to 36 % of its throughput, the
// shared-memory port to 59 %, no bank conflict is left, and the tensor cores work in 81 % of the cycles. For
// each instruction issued a warp waits 2.2 cycles for them, 2.5 for the latency of what it issued before, 0.4
// for copies and 0.3 for the barrier. At 4096^3 a version with more additions did 15 % more FLOP per clock
// without its copies, 11 % when they were only predicated off, 4 % without ldmatrix, 3 % without the barrier,
// 3 % without the epilogue; without all four 22 %, which is 96 % of what mma.sync does alone. 3 % are tiles
// that do not fill the last of four waves. At 2048^3, one wave, its begin and end weigh 10 %. So it stays
// below the ceiling, by what is said below; for each cycle, without what the clock did between two samples,
// it has 74 % of it at 2048^3, 82 at 4096^3 and 84 at 8192^3.
//   Tried, and slower or no faster: tiles of 192x256 (fewer loads and copies for a product, but only half of
// the next fragments find room), 128x128 with two blocks an SM, BK = 32, a block a tile, a barrier in two
// halves by mbarrier, other GROUPs, three stages.
//
// Measured (H200, 2026-11-30; bf16 tn, normal values, cold, all rungs in turn in one run): at 2048^3, 4096^3
// and 8192^3 457, 467 and 467 TFLOP/s; 66, 62 and 59 % of the faster library; 76, 81 and 81 % of the ceiling
// of mma-sync; over mma-raster +59.6, +53.8 and +49.3 %. With f16 at 2048^3, 4096^3 and 8192^3 443, 460 and
// 455 TFLOP/s; 66, 63 and 60 % of the faster library; 78, 84 and 84 % of the ceiling of mma-sync; over
// mma-raster +58.4, +52.8 and +50.5 %.
//
// What the next rung changes (tma-wgmma): the tensor cores read A and B from shared memory by themselves, and
// TMA, one thread, brings them there: next to nothing stands beside the products.
//
// Macros: TYPE (half, __nv_bfloat16), OUT (half, __nv_bfloat16, float), A_K and B_K (1: the operand is
// contiguous in k, 0: in m or n), BN BK (a tile's columns, and depth), STAGES, GROUP, and GUARD:
//   0  m, n and k are multiples of the tile: nothing is checked,
//   1  leading dimensions are multiples of 8: what lies outside comes as zeros, 16 bytes at a time,
//   2  any size: elements are copied one by one.

#include <ptxlab/cp_async.cuh>
#include <ptxlab/gemm_edges.cuh>
#include <ptxlab/ldmatrix.cuh>
#include <ptxlab/mma_m16n8k16.cuh>

namespace {

using ptxlab::CHUNK;

constexpr int BM = 128;
constexpr int WM = 64, WN = 64;  // a warp's tile
constexpr int WARPS_ACROSS = BN / WN;
constexpr int THREADS = 32 * (BM / WM) * WARPS_ACROSS;
constexpr int STEP = 16, STEPS = BK / STEP;         // of one mma along k
constexpr int TILES_M = WM / 16, TILES_N = WN / 8;  // of one mma, in a warp's tile
constexpr int AHEAD = STAGES - 1;                   // tiles that are there or on their way, beside one
static_assert(STEPS % 2 == 0, "two sets of fragments take turns");

// Tiles consist of slabs: 64 rows of A, or 64 columns of B, BK deep. Its lines in shared memory are what is
// contiguous in global memory: BK elements, or the 64.
constexpr int SLAB = 64, SLAB_BYTES = SLAB * BK * 2;
constexpr int SLABS_A = BM / SLAB, SLABS_B = BN / SLAB;
constexpr int STAGE_BYTES = (SLABS_A + SLABS_B) * SLAB_BYTES;
constexpr int COPIES_OF_SLAB = SLAB * BK / CHUNK / THREADS;  // by one thread
constexpr int COPIES_A = SLABS_A * COPIES_OF_SLAB, COPIES = COPIES_A + SLABS_B * COPIES_OF_SLAB;

template <bool K_CONTIGUOUS>
struct Slab {
    static constexpr int LINES = K_CONTIGUOUS ? SLAB : BK;
    static constexpr int CHUNKS = (K_CONTIGUOUS ? BK : SLAB) / CHUNK;  // of a line
    static constexpr int LINES_AT_ONCE = THREADS / CHUNKS;  // that the block copies, a chunk a thread
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

// The first row and column of a tile of C. Blocks walk by columns of GROUP bands, one after the other.
struct Tile {
    int row, col;
};

__device__ __forceinline__ Tile find_tile(int index, int m, int n)
{
    const int across = (n - 1) / BN + 1, down = (m - 1) / BM + 1;
    const int first = index / (GROUP * across) * GROUP, within = index % (GROUP * across);
    const int height = min(GROUP, down - first);  // the last group may be lower
    return {(first + within % height) * BM, within / height * BN};
}

// This thread's part of one operand's copies.
template <bool K_CONTIGUOUS>
struct Operand {
    using Place = Slab<K_CONTIGUOUS>;
    const TYPE *first, *next;  // this thread's first chunk of the tile, and the one that it copies next
    size_t stride;             // elements between two lines
    int left, left_k;          // elements of the matrix from the tile's corner on, along m or n, and along k

    __device__ __forceinline__ void begin(const TYPE* matrix, int size, int k, int corner)
    {
        stride = K_CONTIGUOUS ? k : size;
        first = next = matrix + (K_CONTIGUOUS ? corner * stride : corner) + line() * stride + chunk() * CHUNK;
        left = size - corner;
        left_k = k;
    }

    // To the next tile along k, once all of this one is copied.
    __device__ __forceinline__ void advance()
    {
        first += K_CONTIGUOUS ? BK : BK * stride;
        next = first;
        left_k -= BK;
    }

    static __device__ __forceinline__ int line() { return threadIdx.x / Place::CHUNKS; }
    static __device__ __forceinline__ int chunk() { return threadIdx.x % Place::CHUNKS; }

    // Copies one of this thread's chunks, which are taken in order, to the stage at `target`, if `wanted`.
    // Those of a slab are LINES_AT_ONCE lines apart, which the swizzle's period divides: one addition leads
    // from place to place.
    __device__ __forceinline__ void copy(int number, unsigned target, bool wanted)
    {
        const int slab = number / COPIES_OF_SLAB, further = number % COPIES_OF_SLAB * Place::LINES_AT_ONCE;
        const int along = slab * SLAB + (K_CONTIGUOUS ? line() + further : chunk() * CHUNK);
        const int depth = K_CONTIGUOUS ? chunk() * CHUNK : line() + further;
        const TYPE* const from = K_CONTIGUOUS ? next : first + slab * SLAB + further * stride;
        const unsigned to = target + Place::place(line(), chunk()) + slab * SLAB_BYTES +
                            further * Place::CHUNKS * 16;
        if (wanted) copy_chunk(to, from, left - along, left_k - depth);
        // The compiler must not see through this addition: it would multiply anew for each chunk.
        const size_t bytes = Place::LINES_AT_ONCE * stride * sizeof(TYPE);
        if (K_CONTIGUOUS) asm("add.s64 %0, %0, %1;" : "+l"(next) : "l"(bytes));
    }

private:
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
                ptxlab::store_shared(target + 2 * e, e < elements ? from[e] : TYPE(0.0f));
        }
    }
};

// Brings tiles of A and B to shared memory: those of one tile of C along k, then those of the next one that
// is this block's.
struct Copies {
    const TYPE *a, *b;
    int m, n, k;
    unsigned shared;
    int index, count;  // of the tile of C, and how many there are
    Operand<A_K> from_a;
    Operand<B_K> from_b;
    int left;                  // tiles along k
    unsigned target = shared;  // where the stage that is written next begins

    __device__ __forceinline__ void begin()
    {
        if (index >= count) return;
        const Tile tile = find_tile(index, m, n);
        from_a.begin(a, m, k, tile.row);
        from_b.begin(b, n, k, tile.col);
        left = (k - 1) / BK + 1;
    }

    // One of COPIES of a tile; nothing when there is none left.
    __device__ __forceinline__ void copy(int number)
    {
        const bool wanted = index < count;
        if (number < COPIES_A)
            from_a.copy(number, target, wanted);
        else
            from_b.copy(number - COPIES_A, target + SLABS_A * SLAB_BYTES, wanted);
    }

    __device__ __forceinline__ void finish()
    {
        ptxlab::cp_async_commit();  // an empty group too: the groups are counted
        target = target == shared + (STAGES - 1) * STAGE_BYTES ? shared : target + STAGE_BYTES;
        from_a.advance();
        from_b.advance();
        if (--left == 0) {
            index += gridDim.x;
            begin();
        }
    }
};

// What a warp multiplies, 16 deep: its rows of A and columns of B.
struct Fragments {
    unsigned a[TILES_M][4], b[TILES_N][2];

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
        return further<B_K>(0, 0, warp_col) +
               (B_K ? Slab<B_K>::place(lane / 16 * 8 + lane % 8, lane / 8 % 2)
                    : Slab<B_K>::place(lane % 16, lane / 16));
    }

    // Brings one of LOADS: the first rows of A, all of B, the other rows of A, as they are multiplied.
    // `from_a` and `from_b` are the places that first_a() and first_b() say, in a stage.
    static constexpr int LOADS = TILES_M + TILES_N / 2;
    __device__ __forceinline__ void load(int number, unsigned from_a, unsigned from_b, int step)
    {
        if (number > 0 && number <= TILES_N / 2) {
            const int j = 2 * (number - 1);
            unsigned both[4];
            ldmatrix<B_K>(both, further<B_K>(from_b, step, 8 * j) + SLABS_A * SLAB_BYTES);
            b[j][0] = both[0], b[j][1] = both[1];
            b[j + 1][0] = both[2], b[j + 1][1] = both[3];
        } else {
            const int i = max(number - TILES_N / 2, 0);
            ldmatrix<A_K>(a[i], further<A_K>(from_a, step, 16 * i));
        }
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

using Sums = float[TILES_M][TILES_N][4];

// Two neighbouring elements of C as a thread has summed them, scaled and converted, as words.
constexpr int WORDS = sizeof(OUT) / 2;

__device__ __forceinline__ void convert(unsigned (&words)[WORDS], float first, float second, const OUT* c,
                                        int inside, float alpha, float beta)
{
    const float sums[2] = {first, second};
    alignas(8) OUT pair[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        float value = alpha * sums[e];
        if (beta != 0.0f && e < inside) value += beta * static_cast<float>(c[e]);
        pair[e] = static_cast<OUT>(value);
    }
#pragma unroll
    for (int word = 0; word < WORDS; ++word) words[word] = reinterpret_cast<const unsigned*>(pair)[word];
}

// Four lanes hold a pair each of four n-tiles; afterwards each holds the four pairs of one n-tile.
__device__ __forceinline__ void exchange(unsigned (&pairs)[4][WORDS], int lane)
{
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2) {
#pragma unroll
        for (int t = 0; t < 4; ++t) {
            if (t & bit) continue;
#pragma unroll
            for (int word = 0; word < WORDS; ++word) {
                unsigned &mine = pairs[t][word], &others = pairs[t + bit][word];
                const unsigned taken = __shfl_xor_sync(0xffffffff, lane & bit ? mine : others, bit);
                mine = lane & bit ? taken : mine;
                others = lane & bit ? others : taken;
            }
        }
    }
}

// A warp's sums, from its first row and column on.
__device__ __forceinline__ void write_out(const Sums& sums, OUT* c, int row, int col, int m, int n,
                                          float alpha, float beta, int lane)
{
#pragma unroll
    for (int part = 0; part < 2 * TILES_M; ++part) {  // 8 rows
        const int y = row + 8 * part + lane / 4;
        OUT* const line = c + static_cast<size_t>(y) * n;
#pragma unroll
        for (int j = 0; j < TILES_N; j += 4) {
            alignas(16) unsigned pairs[4][WORDS];
#pragma unroll
            for (int t = 0; t < 4; ++t) {
                const float* const pair = &sums[part / 2][j + t][part % 2 * 2];
                const int x = col + 8 * (j + t) + lane % 4 * 2;
                convert(pairs[t], pair[0], pair[1], line + x, y < m ? n - x : 0, alpha, beta);
            }
            exchange(pairs, lane);
            const int x = col + 8 * (j + lane % 4);
            if (GUARD == 0 || (y < m && x + CHUNK <= n && n % CHUNK == 0)) {
#pragma unroll
                for (int i = 0; i < WORDS; ++i)
                    ptxlab::store_16(line + x + i * CHUNK / WORDS, reinterpret_cast<const uint4*>(pairs)[i]);
            } else {
#pragma unroll
                for (int e = 0; e < CHUNK; ++e)
                    if (y < m && x + e < n) line[x + e] = reinterpret_cast<const OUT*>(pairs)[e];
            }
        }
    }
}

// Adds up a tile of C. `reading` says where its first tiles of A and B are, in bytes; on return, where those
// of the next one are.
__device__ __forceinline__ void multiply(Sums& sums, Copies& copies, unsigned& reading)
{
    constexpr int PRODUCTS = TILES_M * TILES_N, HALF = PRODUCTS / 2, COPIES_OF_STEP = COPIES / STEPS;
    static_assert(2 * Fragments::LOADS <= HALF, "a load after every second product of the first half");
    static_assert(COPIES % STEPS == 0 && COPIES_OF_STEP <= HALF, "copies in the second half of each step");
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned first_a = copies.shared + Fragments::first_a(warp / WARPS_ACROSS * WM, lane);
    const unsigned first_b = copies.shared + Fragments::first_b(warp % WARPS_ACROSS * WN, lane);

    Fragments held[2];
    unsigned from_a = first_a + reading, from_b = first_b + reading;
#pragma unroll
    for (int load = 0; load < Fragments::LOADS; ++load) held[0].load(load, from_a, from_b, 0);
    const int tiles = (copies.k - 1) / BK + 1;
#pragma unroll 1
    for (int t = 0; t < tiles; ++t) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            const int next_step = (step + 1) % STEPS;
            if (next_step == 0) {  // the next tile is there, and all fragments of this one have been loaded
                ptxlab::cp_async_wait<AHEAD - 2>();
                __syncthreads();
                reading = reading == (STAGES - 1) * STAGE_BYTES ? 0 : reading + STAGE_BYTES;
                from_a = first_a + reading, from_b = first_b + reading;
            }
#pragma unroll
            for (int product = 0; product < PRODUCTS; ++product) {
                const int i = product / TILES_N, x = product % TILES_N;
                const int j = i % 2 ? TILES_N - 1 - x : x;  // there and back: b[j] stays in use
                ptxlab::mma_m16n8k16<TYPE>(sums[i][j], held[step % 2].a[i], held[step % 2].b[j]);
                if (product % 2 == 0 && product / 2 < Fragments::LOADS)
                    held[1 - step % 2].load(product / 2, from_a, from_b, next_step);
                const int copy = (product - HALF) * COPIES_OF_STEP;
                if (product >= HALF && copy / HALF != (copy + COPIES_OF_STEP) / HALF)
                    copies.copy(step * COPIES_OF_STEP + copy / HALF);
            }
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
    const int count = ((m - 1) / BM + 1) * ((n - 1) / BN + 1);

    Copies copies{a, b, m, n, k, shared, static_cast<int>(blockIdx.x), count};
    copies.begin();
#pragma unroll 1
    for (int i = 0; i < AHEAD; ++i) {
#pragma unroll
        for (int copy = 0; copy < COPIES; ++copy) copies.copy(copy);
        copies.finish();
    }
    ptxlab::cp_async_wait<AHEAD - 1>();
    __syncthreads();

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned reading = 0;
#pragma unroll 1
    for (int index = blockIdx.x; index < count; index += gridDim.x) {
        Sums sums = {};
        multiply(sums, copies, reading);
        const Tile tile = find_tile(index, m, n);
        const int row = tile.row + warp / WARPS_ACROSS * WM, col = tile.col + warp % WARPS_ACROSS * WN;
        write_out(sums, c, row, col, m, n, alpha, beta, lane);
    }
    ptxlab::cp_async_wait<0>();
}
