// One block has a piece of shared memory, laid out by the host or poisoned, and one thread of it lets TMA copy
// a box for each stage: from the tensor into shared memory, which is written out afterwards, or from shared
// memory into the tensor, which is the output itself. Waits are bounded: a wrong byte count ends in a report.
//
// Macros: KERNEL, OP (0 load, 1 prefetch and load, 2 load by im2col, 3 store, 4 reduce), RANK, REDUCE (of
// ptxlab::Reduce), PROXY_FENCE (0: none between ordinary stores and TMA).

#include <ptxlab/mbarrier.cuh>
#include <ptxlab/tma.cuh>

#define STORE 3
#define STAGES 8

extern "C" __global__ void __launch_bounds__(128)
KERNEL(const __grid_constant__ ptxlab::TensorMap map,
       uint4 *tensor,                       // what the map describes
       const uint4 *before,                 // [tensor_chunks]: what a tensor to be written holds before
       const int *places,                   // [stages][8]: coordinates, dimension 0 first; im2col offsets
       const uint4 *source,                 // [chunks]: shared memory before
       uint4 *image,                        // [chunks]: and after
       unsigned long long *words,           // [16]: the map, its address counted from the tensor's
       int *phases,                         // [stages][2]: whether the phase is complete; bytes expected still
       unsigned tensor_chunks,              // 16-byte chunks of `before`, 0 for a tensor that is read
       unsigned chunks,                     // 16-byte chunks of shared memory
       unsigned stages,
       unsigned offset,                     // of stage 0 in shared memory
       unsigned stage_bytes,                // from one stage to the next
       unsigned expected)                   // bytes that the barrier of a stage is armed with
{
    constexpr unsigned POLLS = 2000;        // of about a microsecond each
    constexpr unsigned SETTLED = 20000;     // ns, in which bytes that nothing expects land, too
    extern __shared__ uint4 dynamic[];      // 1008 bytes more than chunks: begins at a multiple of 1024
    __shared__ unsigned long long barriers[STAGES];
    const unsigned first = static_cast<unsigned>(__cvta_generic_to_shared(dynamic));
    const unsigned base = (first + 1023) / 1024 * 1024;
    const unsigned barrier = static_cast<unsigned>(__cvta_generic_to_shared(barriers));
    uint4 *shared = dynamic + (base - first) / 16;
#pragma unroll 1
    for (unsigned i = threadIdx.x; i < chunks; i += blockDim.x)
        shared[i] = source[i];
#pragma unroll 1
    for (unsigned i = threadIdx.x; i < tensor_chunks; i += blockDim.x)
        tensor[i] = before[i];
    if (threadIdx.x < 16) {
        const unsigned long long start = threadIdx.x == 0 ? reinterpret_cast<unsigned long long>(tensor) : 0;
        words[threadIdx.x] = map.words[threadIdx.x] - start;
    }
#if OP < STORE
    if (threadIdx.x < stages) ptxlab::mbarrier_init(barrier + 8 * threadIdx.x, 1);
    ptxlab::mbarrier_init_fence();
#endif
#if PROXY_FENCE
    ptxlab::fence_proxy_async_all();
#endif
    __syncthreads();

    if (threadIdx.x == 0) {
#pragma unroll 1
        for (unsigned stage = 0; stage < stages; ++stage) {
            const int *given = places + 8 * stage;
            const int c[5] = {given[0], given[1], given[2], given[3], given[4]};
            const unsigned place = base + offset + stage * stage_bytes;
#if OP < STORE
            ptxlab::mbarrier_arrive_expect_tx(barrier + 8 * stage, expected);
#endif
#if OP == 0
            ptxlab::tma_load<RANK>(place, map, c, barrier + 8 * stage);
#elif OP == 1
            ptxlab::tma_prefetch<RANK>(map, c);
            ptxlab::tma_load<RANK>(place, map, c, barrier + 8 * stage);
#elif OP == 2
            using u16 = unsigned short;
            const u16 offsets[3] = {u16(given[5]), u16(given[6]), u16(given[7])};
            ptxlab::tma_load_im2col<RANK>(place, map, c, barrier + 8 * stage, offsets);
#elif OP == 3
            ptxlab::tma_store<RANK>(map, c, place);
#else
            ptxlab::tma_reduce<ptxlab::Reduce::REDUCE, RANK>(map, c, place);
#endif
        }
#if OP < STORE
#pragma unroll 1
        for (unsigned stage = 0; stage < stages; ++stage) {
            bool done = false;
#pragma unroll 1
            for (unsigned poll = 0; poll < POLLS && !done; ++poll) {
                done = ptxlab::mbarrier_test_wait(barrier + 8 * stage, 0);
                __nanosleep(1000);
            }
            __nanosleep(SETTLED);
            ptxlab::mbarrier_inval(barrier + 8 * stage);    // brings the object to where a load sees it
            const unsigned long long object = ptxlab::mbarrier_object(barrier + 8 * stage);
            phases[2 * stage] = done;
            phases[2 * stage + 1] = -(static_cast<int>(object >> 21 << 11) >> 11);    // 21 bits, negated
        }
#else
        ptxlab::tma_commit();
        ptxlab::tma_wait<0, false>();
#endif
    }
    __syncthreads();
#if OP < STORE
#pragma unroll 1
    for (unsigned i = threadIdx.x; i < chunks; i += blockDim.x)
        image[i] = shared[i];
#endif
}
