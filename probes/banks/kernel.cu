// One warp repeats an access to shared memory, for each of three lane-to-address patterns a number of times of
// its own, so that one counter of the launch tells the three apart.
//
// Every word of memory holds its own number, before the access (loads) or because of it (stores): whatever a
// pattern moved is checked by a sum over the lanes. Each repetition of a load waits for the one before, or the
// compiler would make one of them.
//
// Macros: KERNEL, KIND (what is repeated), BYTES (of a lane, LD, ST and LDGSTS), NUM and TRANS (LDSM and STSM),
// CACHE (ca or cg, LDGSTS).

#include <ptxlab/cp_async.cuh>
#include <ptxlab/ldmatrix.cuh>
#include <ptxlab/shared_access.cuh>
#include <ptxlab/stmatrix.cuh>

#define LD 0
#define ST 1
#define LDSM 2
#define STSM 3
#define LDGSTS 4

constexpr unsigned off = ~0u;

// What lies in 16 bits of memory: each word holds its own number.
__device__ __forceinline__ unsigned half_at(unsigned address)
{
    return (address / 4 >> (address % 4 * 8)) & 0xffffu;
}

// The sum of a value over the lanes, in which each lane weighs otherwise.
__device__ __forceinline__ unsigned weighed(unsigned value)
{
    unsigned sum = value * (2 * threadIdx.x + 1);
    for (unsigned step = 16; step; step /= 2)
        sum += __shfl_xor_sync(~0u, sum, step);
    return sum;
}

extern "C" __global__ void KERNEL(const unsigned *addresses,    // [launches][3][32] bytes, or off
                                  const unsigned *times,        // [launches][3]
                                  const unsigned *memory,       // [words], each its own number
                                  unsigned *sums,               // [launches][3]
                                  unsigned *cycles,             // [launches][3], of all repetitions
                                  unsigned words, unsigned launch,
                                  unsigned nothing)             // 0, which the compiler must not know
{
    extern __shared__ __align__(1024) unsigned shared[];
    const unsigned lane = threadIdx.x;
    const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(shared));

#if KIND == LD || KIND == LDSM
    for (unsigned i = lane; i < words; i += 32)
        shared[i] = i;
#endif
    __syncwarp();

#pragma unroll 1
    for (unsigned pattern = 3 * launch; pattern < 3 * launch + 3; ++pattern) {
        const unsigned address = addresses[pattern * 32 + lane], repeats = times[pattern];
        const bool on = repeats && address != off;
        unsigned seen = off;
        const unsigned start = clock();

#if KIND == LD
        if (on) {
            unsigned at = base + address, loaded[BYTES / 4];
#pragma unroll 1
            for (unsigned i = 0; i < repeats; ++i) {
                ptxlab::load_shared(loaded, at);
                for (unsigned each : loaded)
                    at += each & nothing;
            }
            seen = loaded[0];
        }
#elif KIND == ST
        if (on) {
            unsigned stored[BYTES / 4];
            for (unsigned i = 0; i < BYTES / 4; ++i)
                stored[i] = address / 4 + i;
#pragma unroll 1
            for (unsigned i = 0; i < repeats; ++i)
                ptxlab::store_shared(base + address, stored);
        }
#elif KIND == LDSM
        unsigned at = base + address, loaded[NUM] = {};
#pragma unroll 1
        for (unsigned i = 0; i < repeats; ++i) {
            ptxlab::ldmatrix<ptxlab::LdMatrix::m8n8, ptxlab::LdMatrixType::b16, NUM, TRANS>(loaded, at);
            for (unsigned each : loaded)
                at += each & nothing;
        }
        if (on)
            seen = loaded[0];
#elif KIND == STSM
        unsigned stored[NUM];
        for (unsigned i = 0; i < NUM; ++i) {
            const unsigned first = 8 * i + (TRANS ? 2 * (lane % 4) : lane / 4);
            const unsigned row = __shfl_sync(~0u, address, first), next = __shfl_sync(~0u, address, first + 1);
            const unsigned inside = 2 * (lane / 4);
            stored[i] = TRANS ? half_at(row + inside) | half_at(next + inside) << 16 : row / 4 + lane % 4;
        }
#pragma unroll 1
        for (unsigned i = 0; i < repeats; ++i)
            ptxlab::stmatrix<ptxlab::StMatrix::m8n8, TRANS>(base + address, stored);
#else
        if (on) {
#pragma unroll 1
            for (unsigned i = 0; i < repeats; ++i) {
                ptxlab::cp_async<BYTES, ptxlab::CacheAt::CACHE>(base + address, memory + address / 4);
                ptxlab::cp_async_wait_all();
            }
        }
#endif
        __syncwarp();
        const unsigned taken = clock() - start;

#if KIND == ST || KIND == STSM || KIND == LDGSTS
        if (on && lane < LANES)
            seen = shared[address / 4];
#endif
        seen = weighed(seen);
        if (lane == 0) {
            sums[pattern] = seen;
            cycles[pattern] = taken;
        }
        __syncwarp();
    }
}
