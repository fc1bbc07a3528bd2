// A and B lie in shared memory just as the host laid them out, and descriptors that the host computed say
// where; each step multiplies one slice along K and adds to D, whose registers are written out. Before the
// first step the registers hold all ones (NaN): nothing of that may remain. Block x runs experiment x. A
// block has one or two warpgroups; each multiplies 64 rows of A of its own by the same B.
//
// Macros: KERNEL, N, A_TYPE, B_TYPE, ACC (types of A, B and D), REGISTERS (of accumulators in a thread),
// A_REG (1: A comes in registers), A_MN, B_MN (1: MN-major).

#include <ptxlab/wgmma.cuh>

extern "C" __global__ void __launch_bounds__(256)
KERNEL(const uint4 *memory,                      // [experiments][chunks]: A's bytes, then B's
       const unsigned long long *descriptors,    // [steps][warpgroups][A, B], addresses from A's first byte
       const uint4 *fragments,                   // [experiments][steps][threads]: A in registers
       unsigned *accumulators,                   // [experiments][threads][REGISTERS]
       unsigned chunks,                          // 16-byte chunks of one experiment's shared memory
       unsigned steps)
{
    extern __shared__ uint4 dynamic[];           // at least 1024 bytes more than chunks: begins at a multiple
    const unsigned first = static_cast<unsigned>(__cvta_generic_to_shared(dynamic));
    const unsigned base = (first + 1023) / 1024 * 1024;
    uint4 *shared = dynamic + (base - first) / 16;
#pragma unroll 1
    for (unsigned i = threadIdx.x; i < chunks; i += blockDim.x)
        shared[i] = memory[blockIdx.x * chunks + i];
    const unsigned units = base % (1 << 18) / 16;    // as the start address field counts
    ptxlab::fence_proxy_async();
    __syncthreads();

    unsigned d[REGISTERS];
    for (unsigned r = 0; r < REGISTERS; ++r)
        d[r] = ~0u;
#pragma unroll 1
    for (unsigned step = 0; step < steps; ++step) {
        const unsigned pair = (step * (blockDim.x / 128) + threadIdx.x / 128) * 2;
        const unsigned long long b = descriptors[pair + 1] + units;
#if A_REG
        const uint4 a = fragments[(blockIdx.x * steps + step) * blockDim.x + threadIdx.x];
#else
        const unsigned long long a = descriptors[pair] + units;
#endif
        ptxlab::wgmma_fence();
        ptxlab::wgmma<N, ptxlab::Wgmma::A_TYPE, ptxlab::Wgmma::B_TYPE, ptxlab::Wgmma::ACC, A_MN, B_MN>(
            d, a, b, step);
        ptxlab::wgmma_commit();
        ptxlab::wgmma_wait<0>();
    }

    unsigned *own = accumulators + (blockIdx.x * blockDim.x + threadIdx.x) * REGISTERS;
    for (unsigned r = 0; r < REGISTERS; ++r)
        own[r] = d[r];
}
