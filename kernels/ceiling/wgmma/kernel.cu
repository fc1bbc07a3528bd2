// The ceiling of wgmma: what the tensor cores do when nothing else has to happen.
//
// Two warpgroups, as many as a GEMM has that multiply, each multiply 64 rows of A by all 256 columns of B:
// m64n256 after m64n256, 32 bytes deep in k, both operands in shared memory with the 128-byte swizzle, one
// round of four along k being waited for only when the next one is on its way. The data are random: zeros
// would draw less power and run at a higher clock. Since any order of random numbers is as random, they are
// not swizzled on the way in. The sums are written at the end, so that nothing can be left out.
//
// Macros: TYPE (f16, bf16, tf32, e4m3, e5m2, s8), SUMS (f32, s32), KERNEL.

#include <ptxlab/wgmma.cuh>

constexpr int GROUPS = 2;           // warpgroups
constexpr int ROWS = 64, COLS = 256;
constexpr int LINE = 128, STEP = 32;  // bytes: the width of the swizzle, and the depth of an instruction
constexpr int WORDS = (GROUPS * ROWS + COLS) * LINE / 4;

// The descriptor of a K-major tile with 128-byte swizzle: its address, 1024 bytes from one group of 8 lines
// to the next, layout type 1 (PTX ISA, "Matrix descriptor").
__device__ __forceinline__ unsigned long long descriptor(unsigned address)
{
    return 1ull << 62 | (1024ull >> 4) << 32 | 1ull << 16 | (address & 0x3ffff) >> 4;
}

extern "C" __global__ void __launch_bounds__(GROUPS * 128, 1)
    KERNEL(const unsigned* data,        // [WORDS]: A of each warpgroup, then B, as words of TYPE
           float* sums,                 // [blocks * threads]
           unsigned long long* clocks,  // [2 * blocks]: cycles and nanoseconds of the loop
           int rounds)                  // of four m64n256 in each warpgroup
{
    extern __shared__ unsigned memory[];
    const unsigned start = static_cast<unsigned>(__cvta_generic_to_shared(memory));
    const unsigned tile = (start + 1023) / 1024 * 1024;
    for (int i = threadIdx.x; i < WORDS; i += GROUPS * 128) memory[(tile - start) / 4 + i] = data[i];
    ptxlab::fence_proxy_async();
    __syncthreads();

    const unsigned group = threadIdx.x / 128;
    const unsigned long long a = descriptor(tile + group * ROWS * LINE);
    const unsigned long long b = descriptor(tile + GROUPS * ROWS * LINE);
    unsigned d[COLS / 2] = {};
    long long cycles = clock64();
    unsigned long long begin, end;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
        ptxlab::wgmma_fence();
#pragma unroll
        for (int k = 0; k < LINE / STEP; ++k)
            ptxlab::wgmma<COLS, ptxlab::Wgmma::TYPE, ptxlab::Wgmma::TYPE, ptxlab::Wgmma::SUMS, false, false>(
                d, a + STEP / 16 * k, b + STEP / 16 * k, 1);
        ptxlab::wgmma_commit();
        ptxlab::wgmma_wait<1>();
    }
    ptxlab::wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < COLS / 2; ++i) asm volatile("" : "+r"(d[i]));  // not read before the wait
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(end));
    cycles = clock64() - cycles;

    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < COLS / 2; ++i)
        sum += ptxlab::Wgmma::SUMS == ptxlab::Wgmma::s32 ? __int2float_rn(d[i]) : __uint_as_float(d[i]);
    sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
    if (threadIdx.x == 0) {
        clocks[2 * blockIdx.x] = cycles;
        clocks[2 * blockIdx.x + 1] = end - begin;
    }
}
