// One warp copies with cp.async: every lane starts copies of its own, group after group, and some after the last
// group; it waits, and writes out the copies that must have arrived; in the end it writes out all of them.
//
// Macros: KERNEL, SIZE (bytes of one copy), CACHE (of ptxlab::CacheAt), FORM (0 plain, 1 zero fill, 2 ignore),
// WAIT (0 wait_group, 1 wait_all, 2 mbarrier noinc, 3 mbarrier, arrivals added), PENDING (of wait_group).

#include <ptxlab/cp_async.cuh>
#include <ptxlab/mbarrier.cuh>

extern "C" __global__ void __launch_bounds__(32)
KERNEL(const unsigned char *memory,      // the source, [copies][lane][SIZE], lies at an offset in it
       const unsigned *settings,         // [copies][lane]: present bytes, or whether it is ignored
       const unsigned *groups,           // [groups]: how many copies each has
       unsigned char *arrived,           // [copies][lane][SIZE]: what must be there after the wait
       unsigned char *settled,           // [copies][lane][SIZE]: what is there in the end
       unsigned *ended,                  // [1]: whether the wait did
       unsigned count,                   // of groups
       unsigned copies,
       unsigned sure,                    // how many of the copies must have arrived
       unsigned source_offset,
       unsigned offset,                  // of the target from an aligned address
       unsigned arrivals)                // that the mbarrier is initialised for
{
    using namespace ptxlab;
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ __align__(8) unsigned long long barrier;
    const unsigned lane = threadIdx.x;
    const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(shared)) + offset;
    const auto write_out = [&](unsigned char *target, unsigned copy) {
        const unsigned at = (copy * 32 + lane) * SIZE;
#pragma unroll
        for (unsigned byte = 0; byte < SIZE; ++byte)
            target[at + byte] = shared[offset + at + byte];
    };
    const auto start = [&](unsigned copy) {
        const unsigned index = copy * 32 + lane;
        const unsigned target = base + index * SIZE;
        const unsigned char *from = memory + source_offset + index * SIZE;
#if FORM == 0
        cp_async<SIZE, CacheAt::CACHE>(target, from);
#elif FORM == 1
        cp_async_zero_fill<SIZE, CacheAt::CACHE>(target, from, settings[index]);
#else
        cp_async_ignore<SIZE, CacheAt::CACHE>(target, from, settings[index]);
#endif
    };

#pragma unroll 1
    for (unsigned at = lane; at < copies * 32 * SIZE; at += 32)
        shared[offset + at] = 0xA5;
#if WAIT >= 2
    const unsigned at_barrier = static_cast<unsigned>(__cvta_generic_to_shared(&barrier));
    if (lane == 0)
        mbarrier_init(at_barrier, arrivals);
#endif
    __syncthreads();

    unsigned copy = 0;
#pragma unroll 1
    for (unsigned group = 0; group < count; ++group) {
        const unsigned end = copy + groups[group];
#pragma unroll 1
        for (; copy < end; ++copy)
            start(copy);
        cp_async_commit();
    }
#pragma unroll 1
    for (; copy < copies; ++copy)
        start(copy);

    bool done = true;
#if WAIT == 0
    cp_async_wait<PENDING>();
#elif WAIT == 1
    cp_async_wait_all();
#else
    constexpr unsigned POLLS = 2000;    // of a microsecond each, or less
    cp_async_arrive<WAIT == 2>(at_barrier);
    __syncwarp();
#if WAIT == 3
    if (lane == 0)
        mbarrier_arrive(at_barrier);    // the one arrival that the barrier was initialised for
#endif
    done = false;
#pragma unroll 1
    for (unsigned poll = 0; poll < POLLS && !done; ++poll) {
        done = mbarrier_test_wait(at_barrier, 0);
        if (!done)
            __nanosleep(1000);
    }
#endif
#pragma unroll 1
    for (unsigned i = 0; i < (done ? sure : 0); ++i)
        write_out(arrived, i);
    if (lane == 0)
        *ended = done;

    cp_async_wait_all();
#pragma unroll 1
    for (unsigned i = 0; i < copies; ++i)
        write_out(settled, i);
}
