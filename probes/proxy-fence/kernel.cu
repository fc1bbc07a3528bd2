// All threads of a block write 16 bytes each to shared memory, then as often as told once more in a loop, and one
// of them lets a bulk copy or reduction read the whole of it. A fence stands in one of several places, or nowhere.
//
// Macros: KERNEL, WRITE (0 st.shared, 1 stmatrix, 2 cp.async), READ (0 copy, 1 reduction), FENCE (0 none; 1 in
// each thread before the barrier; 2 in the loop; 3 behind the barrier, in the thread that issues the copy).

#include <ptxlab/bulk_copy.cuh>
#include <ptxlab/cp_async.cuh>
#include <ptxlab/stmatrix.cuh>

extern "C" __global__ void __launch_bounds__(128)
KERNEL(const uint4 *source,    // [1 + steps][thread]
       uint4 *target,          // [thread]: 0 before
       unsigned steps)
{
    using namespace ptxlab;
    __shared__ __align__(128) uint4 shared[128];
    const unsigned thread = threadIdx.x, at = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    const auto write = [&](const uint4 *from) {
#if WRITE == 0
        shared[thread] = from[thread];
        asm volatile("" ::: "memory");    // no write is left out for a later one
#elif WRITE == 1
        const unsigned *words = reinterpret_cast<const unsigned *>(from) + thread / 32 * 128 + thread % 32;
        const unsigned registers[4] = {words[0], words[32], words[64], words[96]};
        stmatrix<StMatrix::m8n8, false>(at + 16 * thread, registers);
#else
        cp_async_16(at + 16 * thread, from + thread);
        cp_async_wait_all();
#endif
    };

    target[thread] = make_uint4(0, 0, 0, 0);
    write(source);
#pragma unroll 1
    for (unsigned step = 0; step < steps; ++step) {
        write(source + 128 * (1 + step));
#if FENCE == 2
        fence_proxy_async_shared();
#endif
    }
#if FENCE == 1
    fence_proxy_async_shared();
#endif
    asm volatile("fence.proxy.async.global;" ::: "memory");    // of `target`, and of nothing in shared memory
    __syncthreads();
    if (thread == 0) {
#if FENCE == 3
        fence_proxy_async_shared();
#endif
#if READ == 0
        bulk_store(target, at, sizeof(shared));
#else
        bulk_reduce<Reduce::add, BulkType::u32>(target, at, sizeof(shared));
#endif
        tma_commit();
        tma_wait<0, false>();
    }
}
