// Columns of tensor memory are filled, one operation is carried out, and registers or the same columns are
// written out. A block is one warpgroup, each of whose warps fills and reads its own 32 lanes; two blocks that
// work together are a cluster.
//
// Macros: KERNEL, OP (0 load, 1 store, 2 copy from shared memory, 3 shift, 4 multiply, 5 nothing but the round
// trip), CTA_GROUP, ALLOC (columns allocated), WIDTH (columns filled and written out, a multiple of 8), HALVES
// (of how many of them only the low half is written out). Of load and store: SHAPE, NUM, REGISTERS, PACK,
// SPLIT, LANE (of the address in a warp's quarter). Of copy: SHAPE. Of multiply: KIND, WS, A_TMEM, SCALED (0 or
// 1), LANE, A_COLUMN, SCALE_A, SCALE_B (where they begin).

#include <ptxlab/mbarrier.cuh>
#include <ptxlab/tcgen05.cuh>

extern "C" __global__ void __launch_bounds__(128)
KERNEL(const unsigned *tensor,                   // [trials][blocks][lanes][WIDTH]: tensor memory before
       const unsigned *given,                    // [threads][REGISTERS]: what is stored
       const uint4 *memory,                      // [trials][blocks][chunks]: shared memory
       const unsigned long long *descriptors,    // [2]: of A or the source of a copy, and of B; from 0 on
       unsigned *out,                            // registers, or tensor memory afterwards, laid out as above
       unsigned chunks,                          // 16-byte chunks of shared memory
       unsigned instruction)                     // the descriptor of the instruction
{
    using namespace ptxlab;
    extern __shared__ uint4 dynamic[];           // at least 1024 bytes more than chunks: begins at a multiple
    __shared__ alignas(8) unsigned long long object;
    __shared__ unsigned slot;
    const unsigned barrier = static_cast<unsigned>(__cvta_generic_to_shared(&object));
    const unsigned warp = threadIdx.x / 32;
    const auto everyone = [] {
        tcgen05_fence_before();
        if constexpr (CTA_GROUP == 1)
            __syncthreads();
        else
            asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
        tcgen05_fence_after();
    };

    if (warp == 0) {
        tcgen05_alloc<ALLOC, CTA_GROUP>(static_cast<unsigned>(__cvta_generic_to_shared(&slot)));
        tcgen05_relinquish<CTA_GROUP>();
    }
    if (threadIdx.x == 0) {
        mbarrier_init(barrier, 1);
        mbarrier_init_fence();
    }
    const unsigned first = static_cast<unsigned>(__cvta_generic_to_shared(dynamic));
    const unsigned base = (first + 1023) / 1024 * 1024;
#pragma unroll 1
    for (unsigned i = threadIdx.x; i < chunks; i += 128)
        dynamic[(base - first) / 16 + i] = memory[blockIdx.x * chunks + i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    everyone();

    const unsigned address = *static_cast<volatile unsigned *>(&slot);
    const unsigned quarter = address + (warp * 32 << 16);
    const unsigned row = blockIdx.x * 128 + threadIdx.x;
#pragma unroll 1
    for (unsigned column = 0; column < WIDTH; column += 8) {
        unsigned cells[8];
        for (unsigned i = 0; i < 8; ++i)
            cells[i] = tensor[row * WIDTH + column + i];
        tcgen05_st<Tmem::s32x32b, 8>(quarter + column, cells);
    }
    tcgen05_wait_st();
    everyone();

#if OP == 0
    unsigned loaded[REGISTERS];
    tcgen05_ld<Tmem::SHAPE, NUM, PACK, SPLIT>(loaded, quarter + (LANE << 16));
    tcgen05_wait_ld(loaded);
#pragma unroll
    for (unsigned i = 0; i < REGISTERS; ++i)
        out[row * REGISTERS + i] = loaded[i];
#elif OP == 1
    unsigned stored[REGISTERS];
#pragma unroll
    for (unsigned i = 0; i < REGISTERS; ++i)
        stored[i] = given[row * REGISTERS + i];
    tcgen05_st<Tmem::SHAPE, NUM, PACK, SPLIT>(quarter + (LANE << 16), stored);
    tcgen05_wait_st();
#elif OP != 5
    if (threadIdx.x == 0 && blockIdx.x % CTA_GROUP == 0) {
        const unsigned units = base % (1 << 18) / 16;    // as the start address field counts
#if OP == 2
        tcgen05_cp<Tcgen05Copy::SHAPE, CTA_GROUP>(address, descriptors[0] + units);
#elif OP == 3
        tcgen05_shift<CTA_GROUP>(address);
#elif OP == 4
#if A_TMEM
        const unsigned a = address + (LANE << 16) + A_COLUMN;
#else
        const unsigned long long a = descriptors[0] + units;
#endif
        const unsigned long long b = descriptors[1] + units;
#if SCALED
        tcgen05_mma_scaled<Tcgen05Kind::KIND, CTA_GROUP>(address, a, b, instruction, address + SCALE_A,
                                                         address + SCALE_B, 0);
#else
        tcgen05_mma<Tcgen05Kind::KIND, CTA_GROUP, WS>(address + (LANE << 16), a, b, instruction, 0);
#endif
#endif
        tcgen05_commit<CTA_GROUP>(barrier);
    }
    while (!mbarrier_try_wait<(CTA_GROUP == 1 ? WaitScope::cta : WaitScope::cluster)>(barrier, 0)) {
    }
    tcgen05_fence_after();
#endif
#if OP != 0
#pragma unroll 1
    for (unsigned column = 0; column < WIDTH; column += 8) {
        unsigned cells[8];
        tcgen05_ld<Tmem::s32x32b, 8>(cells, quarter + column);
        tcgen05_wait_ld(cells);
        for (unsigned i = 0; i < 8; ++i)
            out[row * WIDTH + column + i] = static_cast<int>(column + i) < HALVES ? cells[i] & 0xFFFF : cells[i];
    }
#endif
    everyone();
    if (warp == 0)
        tcgen05_dealloc<ALLOC, CTA_GROUP>(address);
}
