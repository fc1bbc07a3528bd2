// One or two warpgroups issue wgmma after wgmma, STEPS of them a round, and read the clock before the first and
// when the last is done. A round is waited for only when the next one is on its way, so that the tensor cores
// never run dry. A and B lie in shared memory just as the host laid them out; each step multiplies another
// slice along K, with descriptors of its own, and adds to the same D: of wgmma that are the same, or whose D
// nobody reads, a compiler may leave fewer. A sum over the registers of D shows that all of them took place.
//
// Macros: KERNEL, N, A_TYPE, B_TYPE, ACC (types of A, B and D), REGISTERS (of accumulators in a thread),
// A_REG (1: A comes in registers), A_MN, B_MN (1: MN-major), STEPS (wgmma in a round), VARY (0: each step
// takes the first one's operands), ADD (0: D is overwritten, not added to).

#include <ptxlab/wgmma.cuh>

extern "C" __global__ void __launch_bounds__(256)
KERNEL(const uint4 *memory,                      // [chunks]: A's bytes, then B's
       const unsigned long long *descriptors,    // [STEPS][warpgroups][A, B], addresses from A's first byte
       const uint4 *fragments,                   // [STEPS][threads]: A in registers
       unsigned *sums,                           // [threads]
       long long *clocks,                        // [warpgroups][2]: of the SM, before and after
       unsigned chunks,                          // 16-byte chunks of shared memory
       unsigned rounds)
{
    extern __shared__ uint4 dynamic[];           // at least 1024 bytes more than chunks: begins at a multiple
    const unsigned first = static_cast<unsigned>(__cvta_generic_to_shared(dynamic));
    const unsigned base = (first + 1023) / 1024 * 1024;
    for (unsigned i = threadIdx.x; i < chunks; i += blockDim.x)
        dynamic[(base - first) / 16 + i] = memory[i];
    const unsigned units = base % (1 << 18) / 16;    // as the start address field counts
    ptxlab::fence_proxy_async();

    // A value that the whole warp has for certain: descriptors then stay in uniform registers.
    const unsigned group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    unsigned long long b[STEPS];
#if A_REG
    uint4 a[STEPS];
#else
    unsigned long long a[STEPS];
#endif
#pragma unroll
    for (unsigned step = 0; step < STEPS; ++step) {
        const unsigned from = VARY ? step : 0, pair = (from * (blockDim.x / 128) + group) * 2;
        b[step] = descriptors[pair + 1] + units;
#if A_REG
        a[step] = fragments[from * blockDim.x + threadIdx.x];
#else
        a[step] = descriptors[pair] + units;
#endif
    }
    unsigned d[REGISTERS] = {};
    __syncthreads();

    const long long begin = clock64();
#pragma unroll 1
    for (unsigned round = 0; round < rounds; ++round) {
        ptxlab::wgmma_fence();
#pragma unroll
        for (unsigned step = 0; step < STEPS; ++step)
            ptxlab::wgmma<N, ptxlab::Wgmma::A_TYPE, ptxlab::Wgmma::B_TYPE, ptxlab::Wgmma::ACC, A_MN, B_MN>(
                d, a[step], b[step], ADD);
        ptxlab::wgmma_commit();
        ptxlab::wgmma_wait<1>();
    }
    ptxlab::wgmma_wait<0>();
    const long long end = clock64();

    unsigned sum = 0;
    for (unsigned r = 0; r < REGISTERS; ++r) {
        asm volatile("" : "+r"(d[r]));           // not read before the wait
        sum += (2 * r + 1) * d[r];
    }
    sums[threadIdx.x] = sum;
    if (threadIdx.x % 128 == 0) {
        clocks[2 * group] = begin;
        clocks[2 * group + 1] = end;
    }
}
