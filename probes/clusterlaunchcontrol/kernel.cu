// Every block does its own work, then asks for that of blocks that have not started, until there are none.
// Doing the work of a block is to add 1 to its counter, which starts at -1.
//
// Macros: KERNEL, CLUSTER (blocks of a cluster).

#include <ptxlab/clusterlaunchcontrol.cuh>
#include <ptxlab/mbarrier.cuh>

extern "C" __global__ void __launch_bounds__(32) KERNEL(unsigned *done)    // [blocks]
{
    __shared__ alignas(16) uint4 response;
    __shared__ alignas(8) unsigned long long object;
    const unsigned answer = static_cast<unsigned>(__cvta_generic_to_shared(&response));
    const unsigned barrier = static_cast<unsigned>(__cvta_generic_to_shared(&object));
    const unsigned rank = blockIdx.x % CLUSTER;
    const bool first = threadIdx.x == 0;

    if (first) {
        ptxlab::mbarrier_init(barrier, 1);
        ptxlab::mbarrier_init_fence();
    }
    unsigned block = blockIdx.x;
    for (unsigned parity = 0;; parity ^= 1) {
        // All blocks of the cluster have read the last answer and are ready for the next.
        asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
        if (first) {
            ptxlab::mbarrier_arrive_expect_tx(barrier, 16);
            if (rank == 0)
                ptxlab::try_cancel<(CLUSTER > 1)>(answer, barrier);
            atomicAdd(done + block, 1);    // the work, while the answer is on its way
        }
        while (!ptxlab::mbarrier_try_wait<ptxlab::WaitScope::cluster>(barrier, parity)) {
        }
        unsigned x, y, z;
        if (!ptxlab::query_cancel(answer, x, y, z))
            break;
        block = x + rank;
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");    // the next answer comes after this read
    }
}
