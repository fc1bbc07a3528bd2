// Each block has bytes of its own in shared memory, `from`, and poison or operands, `to`. One thread of it lets a
// bulk copy take `bytes` from global memory to `to`, from `from` to global memory, or from `from` to `to` of the
// next block of the cluster; a reduction combines them with what is there. Waits on barriers are bounded: a wrong
// byte count ends in a report.
//
// Macros: KERNEL, OP (0 load, 1 prefetch and load, 2 send, 3 send and reduce, 4 store, 5 reduce), REDUCE (of
// ptxlab::Reduce), TYPE (of ptxlab::BulkType), WAIT (of stores: 0 none, 1 until read, 2 until written), PENDING
// (groups that the wait leaves).

#include <ptxlab/bulk_copy.cuh>
#include <ptxlab/mbarrier.cuh>

#define SEND 2
#define STORE 4

extern "C" __global__ void __launch_bounds__(128)
KERNEL(const uint4 *source,         // [blocks][chunks]: `from`; what a load reads
       const uint4 *before,         // [blocks][chunks]: `to` before, in shared or in global memory
       uint4 *after,                // [blocks][chunks]: and after
       uint4 *readback,             // [chunks]: what the issuing thread read of it right after the wait
       int *phases,                 // [blocks][2]: whether the phase ended; bytes expected still
       unsigned chunks,             // 16-byte chunks of `from`, and of `to`
       unsigned groups,             // of stores, each of `bytes`
       unsigned sure,               // groups that the wait must have seen to
       unsigned bytes,
       unsigned from_offset,
       unsigned to_offset,
       unsigned expected)           // bytes that a barrier is armed with
{
    using namespace ptxlab;
    constexpr unsigned POLLS = 2000;        // of about a microsecond each
    constexpr unsigned SETTLED = 20000;     // ns, in which bytes that nothing expects land, too
    extern __shared__ __align__(128) uint4 from[];
    __shared__ __align__(8) unsigned long long object;
    uint4 *to = from + chunks;
    const unsigned own = blockIdx.x, barrier = static_cast<unsigned>(__cvta_generic_to_shared(&object));
    const unsigned at_from = static_cast<unsigned>(__cvta_generic_to_shared(from)) + from_offset;
    const unsigned at_to = static_cast<unsigned>(__cvta_generic_to_shared(to)) + to_offset;
#pragma unroll 1
    for (unsigned i = threadIdx.x; i < chunks; i += blockDim.x) {
        from[i] = source[own * chunks + i];
#if OP < STORE
        to[i] = before[own * chunks + i];
#else
        after[i] = before[i];
#endif
    }
#if OP < STORE
    if (threadIdx.x == 0) {
        mbarrier_init(barrier, 1);
        mbarrier_init_fence();
    }
#endif
    fence_proxy_async_all();
#if OP == SEND || OP == SEND + 1
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
#else
    __syncthreads();
#endif

    if (threadIdx.x == 0) {
#if OP < STORE
        mbarrier_arrive_expect_tx(barrier, expected);
        const char *global = reinterpret_cast<const char *>(source) + from_offset;
#if OP == 1
        bulk_prefetch(global, bytes);
#endif
#if OP < SEND
        bulk_load(at_to, global, bytes, barrier);
#else
        const unsigned next = (own + 1) % gridDim.x;
        const unsigned there = mbarrier_of_block(at_to, next), barrier_there = mbarrier_of_block(barrier, next);
#if OP == SEND
        bulk_send(there, at_from, bytes, barrier_there);
#else
        bulk_send_reduce<Reduce::REDUCE, BulkType::TYPE>(there, at_from, bytes, barrier_there);
#endif
#endif
        bool done = false;
#pragma unroll 1
        for (unsigned poll = 0; poll < POLLS && !done; ++poll) {
            done = mbarrier_test_wait<WaitScope::cluster>(barrier, 0);
            __nanosleep(1000);
        }
        __nanosleep(SETTLED);
        mbarrier_inval(barrier);    // brings the object to where a load sees it
        const unsigned long long held = mbarrier_object(barrier);
        phases[2 * own] = done;
        phases[2 * own + 1] = -(static_cast<int>(held >> 21 << 11) >> 11);    // 21 bits, negated
#else
        char *global = reinterpret_cast<char *>(after) + to_offset;
#pragma unroll 1
        for (unsigned group = 0; group < groups; ++group) {
#if OP == STORE
            bulk_store(global + group * bytes, at_from + group * bytes, bytes);
#else
            bulk_reduce<Reduce::REDUCE, BulkType::TYPE>(global + group * bytes, at_from + group * bytes, bytes);
#endif
            tma_commit();
        }
#if WAIT
        tma_wait<PENDING, WAIT == 1>();
#pragma unroll 1
        for (unsigned i = 0; i < sure * bytes / 16; ++i) {
#if WAIT == 1
            from[from_offset / 16 + i] = make_uint4(~0u, ~0u, ~0u, ~0u);    // it is read: this changes nothing
#else
            readback[to_offset / 16 + i] = after[to_offset / 16 + i];
#endif
        }
        tma_wait<0, false>();
#endif
#endif
    }
#if OP == SEND || OP == SEND + 1
    __cluster_barrier_arrive();    // nobody ends while others read its shared memory
    __cluster_barrier_wait();
#endif
    __syncthreads();
#if OP < STORE
#pragma unroll 1
    for (unsigned i = threadIdx.x; i < chunks; i += blockDim.x)
        after[own * chunks + i] = to[i];
#endif
}
#undef SEND
#undef STORE
