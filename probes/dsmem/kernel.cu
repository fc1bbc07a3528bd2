// Every block of a cluster reaches into the shared memory of every block, its own among them. A block has one slot
// of 32 lanes for each block that may write to it. Macros: KERNEL, OP (0 mapa, 1 ld, 2 st, 3 st.async, 4 atom,
// 5 red, 6 red.async), WORDS (of a lane), REDUCE (of ptxlab::Reduce), EXIT_BARRIER (0: blocks other than 0 end at
// once, and block 0 reaches into what they left).

#include <ptxlab/cluster.cuh>
#include <ptxlab/mbarrier.cuh>

#define MAPA 0
#define LD 1
#define ST 2
#define ST_ASYNC 3
#define ATOM 4
#define RED 5
#define RED_ASYNC 6

__device__ __forceinline__ void meet()
{
    ptxlab::cluster_arrive<ptxlab::ClusterBarrier::release>();
    ptxlab::cluster_wait<ptxlab::ClusterBarrier::release>();
}

extern "C" __global__ void __launch_bounds__(32)
KERNEL(const unsigned *before,    // [blocks][slots][32][WORDS]: shared memory before
       unsigned *after,           // and after
       unsigned *answers,         // [blocks][blocks][32][WORDS]: what block i got from block j; mapa: addresses
       int *ended,                // [blocks]: whether the barrier's phase ended
       unsigned slots,
       unsigned expected)         // bytes that each barrier is armed with
{
    using namespace ptxlab;
    constexpr unsigned POLLS = 2000;           // of about a microsecond each
    constexpr unsigned LONG_AFTER = 200'000;   // cycles: by then the other blocks have left
    extern __shared__ __align__(16) unsigned window[];
    __shared__ __align__(8) unsigned long long object;
    const unsigned lane = threadIdx.x, own = cluster_rank(), size = cluster_size();
    const unsigned at_window = static_cast<unsigned>(__cvta_generic_to_shared(window));
    const unsigned barrier = static_cast<unsigned>(__cvta_generic_to_shared(&object));
    const unsigned total = slots * 32 * WORDS;
#pragma unroll 1
    for (unsigned i = lane; i < total; i += 32)
        window[i] = before[own * total + i];
#if OP == ST_ASYNC || OP == RED_ASYNC
    if (lane == 0) {
        mbarrier_init(barrier, 1);
        mbarrier_arrive_expect_tx(barrier, expected);
        mbarrier_init_fence();
    }
#endif
    meet();
#if !EXIT_BARRIER
    if (own != 0)
        return;
    const long long start = clock64();
    while (clock64() - start < LONG_AFTER) {}
#endif

#pragma unroll 1
    for (unsigned peer = 0; peer < size; ++peer) {
        const unsigned slot = OP == ST || OP == ST_ASYNC ? own : 0;
        const unsigned offset = (slot * 32 + lane) * WORDS;
        const unsigned there = map_to_block(at_window + 4 * offset, peer);
        unsigned *answer = answers + ((own * size + peer) * 32 + lane) * WORDS;
        [[maybe_unused]] unsigned value[WORDS];
        // what inc and dec leave depends on the order of their operands, so that all blocks have the same
        constexpr bool ordered = Reduce::REDUCE == Reduce::inc || Reduce::REDUCE == Reduce::dec;
        [[maybe_unused]] const unsigned operand = lane + 1 + (ordered ? 0 : 32 * own);
#if OP == ST || OP == ST_ASYNC
#pragma unroll
        for (unsigned word = 0; word < WORDS; ++word)
            value[word] = own << 24 | peer << 16 | lane << 8 | word;
#endif
#if OP == MAPA
        // by lane: the address in the own block; where it lies in the other; whose that is; and the generic one
        answer[0] = at_window + 4 * offset;
        answer[1] = there;
        answer[2] = rank_of_address(there);
        answer[3] = static_cast<unsigned>(map_to_block(window + offset, peer) -
                                          reinterpret_cast<unsigned long long>(window + offset));
#elif OP == LD
        cluster_load(value, there);
#pragma unroll
        for (unsigned word = 0; word < WORDS; ++word)
            answer[word] = value[word];
#elif OP == ST
        cluster_store(there, value);
#elif OP == ST_ASYNC
        cluster_store_async(there, value, map_to_block(barrier, peer));
#elif OP == RED
        cluster_red<Reduce::REDUCE>(there, operand);
#elif OP == RED_ASYNC
        cluster_red_async<Reduce::REDUCE>(there, operand, map_to_block(barrier, peer));
#elif OP == ATOM
#pragma unroll 1
        for (unsigned turn = 0; turn < size; ++turn) {    // one block at a time, so that the answers are known
            if (turn == own)
                answer[0] = cluster_atom<Reduce::REDUCE>(there, operand);
            meet();
        }
#endif
    }

#if OP == ST_ASYNC || OP == RED_ASYNC
    bool done = false;
#pragma unroll 1
    for (unsigned poll = 0; poll < POLLS && !done; ++poll) {
        done = mbarrier_test_wait<WaitScope::cluster>(barrier, 0);
        __nanosleep(1000);
    }
    if (lane == 0)
        ended[own] = done;
#endif
#if EXIT_BARRIER
    meet();
#endif
    __syncwarp();
#pragma unroll 1
    for (unsigned i = lane; i < total; i += 32)
        after[own * total + i] = window[i];
}
#undef MAPA
#undef LD
#undef ST
#undef ST_ASYNC
#undef ATOM
#undef RED
#undef RED_ASYNC
