// Blocks of a cluster arm their barriers; then some of them issue one multicast each, a slice of the source that
// lands in all blocks of a mask. Waits are bounded. Macros: KERNEL, TENSOR (0 bulk copy, 1 box of a tensor map).

#include <ptxlab/cluster.cuh>
#include <ptxlab/mbarrier.cuh>

extern "C" __global__ void __launch_bounds__(32)
KERNEL(const __grid_constant__ ptxlab::TensorMap map,    // rows of 256 bytes, a box is a slice
       const unsigned *source,      // [words]
       const unsigned *expected,    // [blocks]: bytes that the barrier of each is armed with
       unsigned *windows,           // [blocks][words]: what lies in shared memory at the end
       int *ended,                  // [blocks][2]: whether the phase ended before anything was sent; at the end
       unsigned bytes,              // of all slices
       unsigned slice,              // bytes that one block issues
       unsigned issuers,            // mask of the blocks that issue, the first slice first
       unsigned destinations,       // mask of the blocks that receive
       unsigned settle)             // cycles in which bytes that nothing expects land, too
{
    using namespace ptxlab;
    constexpr unsigned POLLS = 2000;    // of about a microsecond each
    constexpr ClusterBarrier form = ClusterBarrier::release;
    extern __shared__ __align__(1024) unsigned window[];
    __shared__ __align__(8) unsigned long long object;
    const unsigned own = cluster_rank();
    const unsigned at_window = static_cast<unsigned>(__cvta_generic_to_shared(window));
    const unsigned barrier = static_cast<unsigned>(__cvta_generic_to_shared(&object));
#pragma unroll 1
    for (unsigned i = threadIdx.x; i < bytes / 4; i += 32)
        window[i] = 0xA5A5A5A5;
    if (threadIdx.x == 0) {
        mbarrier_init(barrier, 1);
        mbarrier_init_fence();
        mbarrier_arrive_expect_tx(barrier, expected[own]);
        ended[2 * own] = mbarrier_test_wait(barrier, 0);
    }
    fence_proxy_async_all();
    cluster_arrive<form>();    // no byte comes before every block is ready
    cluster_wait<form>();

    if (threadIdx.x == 0) {
        if (issuers >> own & 1) {
            const unsigned at = slice * __popc(issuers & ((1u << own) - 1));
#if TENSOR
            tma_multicast(at_window + at, map, 0, at / 256, barrier, destinations);
#else
            bulk_multicast(at_window + at, source + at / 4, slice, barrier, destinations);
#endif
        }
        bool done = false;
#pragma unroll 1
        for (unsigned poll = 0; poll < POLLS && !done; ++poll) {
            done = mbarrier_test_wait<WaitScope::cluster>(barrier, 0);
            __nanosleep(1000);
        }
        ended[2 * own + 1] = done;
        const long long start = clock64();
        while (clock64() - start < settle) {}
    }
    cluster_arrive<form>();    // nobody ends while bytes are on their way to it
    cluster_wait<form>();
#pragma unroll 1
    for (unsigned i = threadIdx.x; i < bytes / 4; i += 32)
        windows[own * (bytes / 4) + i] = window[i];
}
