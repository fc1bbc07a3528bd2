// The ceiling of mma.sync: what the tensor cores do when nothing else has to happen.
//
// Every warp multiplies fragments that stay in its registers, CHAINS accumulators in turn, so that no
// multiplication waits for the one before it. The data are random: zeros would draw less power and run
// at a higher clock. The sums are written at the end, so that nothing can be left out.
//
// Macros: TYPE (half, __nv_bfloat16), CHAINS (accumulators of a warp), KERNEL.

#include <ptxlab/mma_m16n8k16.cuh>

extern "C" __global__ void KERNEL(const unsigned* data,        // [32 * 12]: fragments, as pairs of TYPE
                                  float* sums,                 // [blocks * threads]
                                  unsigned long long* clocks,  // [2 * blocks]: cycles, nanoseconds of the loop
                                  int rounds)                  // of CHAINS multiplications
{
    const int lane = threadIdx.x % 32;
    unsigned a[2][4], b[2][2];
#pragma unroll
    for (int i = 0; i < 8; ++i) a[i / 4][i % 4] = data[i * 32 + lane];
#pragma unroll
    for (int i = 0; i < 4; ++i) b[i / 2][i % 2] = data[(8 + i) * 32 + lane];

    float d[CHAINS][4] = {};
    long long cycles = clock64();
    unsigned long long begin, end;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int chain = 0; chain < CHAINS; ++chain)
            ptxlab::mma_m16n8k16<TYPE>(d[chain], a[chain % 2], b[chain / 2 % 2]);
    }

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(end));
    cycles = clock64() - cycles;

    float sum = 0.0f;
#pragma unroll
    for (int chain = 0; chain < CHAINS; ++chain) sum += d[chain][0] + d[chain][1] + d[chain][2] + d[chain][3];
    sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
    if (threadIdx.x == 0) {
        clocks[2 * blockIdx.x] = cycles;
        clocks[2 * blockIdx.x + 1] = end - begin;
    }
}
