// TRACE: one warp runs a list of steps on one barrier. Block k stops after step k and writes out the object, the
// state that an arrival returned, and whether a wait passed. While a barrier lives its object is not in memory;
// inval puts it there, so that each block ends with one.
//
// RING: warp 0 of each block is a producer, the others are consumers, with stages of shared memory between
// them. A producer writes the number of its iteration into the same stage of every block of the cluster and
// arrives there; consumers write out what they find, and arrive at the empty barriers of every block. Lane 0
// of a warp acts for it.
//   RING 1, in lockstep: a tick is three parts that all threads of the cluster wait for: whoever waits tests
//   its barrier; those that passed read; then they write and arrive. Order within a part changes nothing, so
//   that even a broken ring ends in the same way every time.
//   RING 2, free: they wait for barriers alone, and give up after a while.
//
// Macros: KERNEL, RING (0: TRACE, 1 or 2).

#include <ptxlab/mbarrier.cuh>

#if RING == 0

enum Op {    // as in ptxlab/isa/mbarrier.py
    INIT, ARRIVE, ARRIVE_COUNT, ARRIVE_EXPECT_TX, ARRIVE_DROP, EXPECT_TX, COMPLETE_TX,
    TEST_WAIT, TEST_WAIT_STATE, TRY_WAIT, TRY_WAIT_STATE, WAIT, WAIT_STATE, INVAL
};
constexpr unsigned POLLS = 8;    // of a wait; nothing else runs that could let it pass later
constexpr unsigned MOST_STEPS = 256;

extern "C" __global__ void KERNEL(const unsigned *steps,            // [step][op, operand, lanes that do it]
                                  unsigned long long *objects,      // [step]
                                  unsigned long long *states,       // [step], 0 where there is none
                                  int *passed)                      // [step], -1 where nothing waits
{
    using namespace ptxlab;
    __shared__ __align__(8) unsigned long long barrier;
    __shared__ unsigned long long returned[MOST_STEPS];
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(&barrier));
    const unsigned last = blockIdx.x;
    int pass = -1;
#pragma unroll 1
    for (unsigned i = 0; i <= last; ++i) {
        const unsigned op = steps[3 * i], operand = steps[3 * i + 1], lanes = steps[3 * i + 2];
        unsigned long long state = 0;
        pass = -1;
        if (threadIdx.x < lanes) {
            switch (op) {
            case INIT: mbarrier_init(at, operand); break;
            case ARRIVE: state = mbarrier_arrive(at); break;
            case ARRIVE_COUNT: state = mbarrier_arrive(at, operand); break;
            case ARRIVE_EXPECT_TX: state = mbarrier_arrive_expect_tx(at, operand); break;
            case ARRIVE_DROP: state = mbarrier_arrive_drop(at, operand); break;
            case EXPECT_TX: mbarrier_expect_tx(at, operand); break;
            case COMPLETE_TX: mbarrier_complete_tx(at, operand); break;
            case TEST_WAIT: pass = mbarrier_test_wait(at, operand); break;
            case TEST_WAIT_STATE: pass = mbarrier_test_wait_state(at, returned[operand]); break;
            case TRY_WAIT: pass = mbarrier_try_wait(at, operand); break;
            case TRY_WAIT_STATE: pass = mbarrier_try_wait_state(at, returned[operand]); break;
            case WAIT:
#pragma unroll 1
                for (unsigned poll = 0; poll < POLLS && pass != 1; ++poll)
                    pass = mbarrier_try_wait(at, operand);
                break;
            case WAIT_STATE:
#pragma unroll 1
                for (unsigned poll = 0; poll < POLLS && pass != 1; ++poll)
                    pass = mbarrier_try_wait_state(at, returned[operand]);
                break;
            }
        }
        __syncwarp();
        if (threadIdx.x == 0) {
            if (op == INVAL || i == last)
                mbarrier_inval(at);
            // which of several lanes arrives first is not ours to say; the low word is not written by all forms
            returned[i] = lanes == 1 ? state >> 32 << 32 : 0;
        }
        __syncwarp();
    }
    if (threadIdx.x == 0) {
        objects[last] = mbarrier_object(at);
        states[last] = returned[last];
        passed[last] = pass;
    }
}

#else

constexpr unsigned MOST_STAGES = 8, MOST_BLOCKS = 8;
constexpr long long PATIENCE = 20'000'000;    // cycles, about 10 ms: an iteration takes about a thousandth

struct Ring {    // as in ptxlab/isa/ring.py
    unsigned stages, iters, consumers, blocks, empty_count, producer_parity, consumer_parity, flip;
    unsigned slow_producers, slow_consumers, slow_last, slowness, quits_after, drops, ticks;
};

// Waits for all threads of the cluster; what they wrote before is seen after.
__device__ __forceinline__ void meet()
{
    __syncwarp();
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
}

extern "C" __global__ void KERNEL(const Ring *settings,
                                  int *acted,                    // [blocks][1 + consumers][iters]: the tick
                                  unsigned *reads,               // [blocks][consumers][iters][blocks]
                                  unsigned long long *objects)   // [blocks][full, empty][stages]
{
    using namespace ptxlab;
    __shared__ __align__(8) unsigned long long barriers[2][MOST_STAGES];    // full, empty
    __shared__ unsigned slots[MOST_STAGES][MOST_BLOCKS];                    // by the block that wrote it

    const Ring ring = *settings;
    const unsigned rank = blockIdx.x, warp = threadIdx.x / 32;
    const bool produces = warp == 0, acts = threadIdx.x % 32 == 0;
    const bool last = rank == ring.blocks - 1 && warp == ring.consumers;
    const unsigned iters = last && ring.quits_after ? ring.quits_after : ring.iters;
    const unsigned full = static_cast<unsigned>(__cvta_generic_to_shared(barriers[0]));
    const unsigned empty = static_cast<unsigned>(__cvta_generic_to_shared(barriers[1]));
    int *own_acted = acted + (rank * (1 + ring.consumers) + warp) * ring.iters;
    unsigned *own_reads = reads + (rank * ring.consumers + warp - 1) * ring.iters * ring.blocks;

    if (threadIdx.x < ring.stages) {
        mbarrier_init(full + 8 * threadIdx.x, ring.blocks);
        mbarrier_init(empty + 8 * threadIdx.x, ring.empty_count);
#pragma unroll 1
        for (unsigned block = 0; block < ring.blocks; ++block)
            slots[threadIdx.x][block] = ~0u;
        mbarrier_init_fence();
    }
    meet();

    const auto parity = [&](unsigned i) {
        const unsigned start = produces ? ring.producer_parity : ring.consumer_parity;
        return ring.flip ? start ^ i / ring.stages % 2 : start;
    };
    const auto awaited = [&](unsigned i) { return (produces ? empty : full) + 8 * (i % ring.stages); };
    const auto read = [&](unsigned i) {
#pragma unroll 1
        for (unsigned block = 0; block < ring.blocks; ++block)
            own_reads[i * ring.blocks + block] = static_cast<volatile unsigned &>(slots[i % ring.stages][block]);
    };
    const auto act = [&](unsigned i, int tick) {
        const unsigned stage = i % ring.stages;
        const bool drops = last && ring.drops && i + ring.stages >= iters;    // its last visit of this stage
#pragma unroll 1
        for (unsigned block = 0; block < ring.blocks; ++block) {
            if (produces)
                *static_cast<unsigned *>(__cluster_map_shared_rank(&slots[stage][rank], block)) = i;
            const unsigned there = mbarrier_of_block((produces ? full : empty) + 8 * stage, block);
            if (drops)
                mbarrier_arrive_drop_remote(there);
            else
                mbarrier_arrive_remote(there);
        }
        own_acted[i] = tick;
    };

    unsigned i = 0;
#if RING == 1
    const bool slow = produces ? ring.slow_producers : ring.slow_consumers || (last && ring.slow_last);
#pragma unroll 1
    for (unsigned tick = 0; tick < ring.ticks; ++tick) {
        const bool awake = !slow || tick % ring.slowness == ring.slowness - 1;
        bool passed = false;
        if (acts && i < iters && awake)
            passed = mbarrier_test_wait<WaitScope::cluster>(awaited(i), parity(i));
        meet();
        if (passed && !produces)
            read(i);
        meet();
        if (passed)
            act(i++, static_cast<int>(tick));
        meet();
    }
#else
    const long long start = clock64();
    if (acts) {
#pragma unroll 1
        while (i < iters) {
            bool passed = false;
            while (!passed && clock64() - start < PATIENCE)
                passed = mbarrier_try_wait<WaitScope::cluster>(awaited(i), parity(i));
            if (!passed)
                break;
            if (!produces)
                read(i);
            act(i++, 0);
        }
    }
    meet();
#endif

    if (threadIdx.x < 2 * ring.stages) {
        const unsigned kind = threadIdx.x / ring.stages, stage = threadIdx.x % ring.stages;
        const unsigned barrier = (kind ? empty : full) + 8 * stage;
        mbarrier_inval(barrier);
        objects[(rank * 2 + kind) * ring.stages + stage] = mbarrier_object(barrier);
    }
}

#endif
