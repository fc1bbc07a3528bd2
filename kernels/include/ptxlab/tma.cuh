// TMA: one thread copies a box of a tensor of 1 to 5 dimensions between global and shared memory, adds it to
// global memory, or brings it into L2. From sm_90 on. Source: PTX ISA, "Data movement and conversion
// instructions: cp.async.bulk.tensor", "... cp.reduce.async.bulk.tensor", "... cp.async.bulk.prefetch.tensor".
//
// A kernel takes its map as `const __grid_constant__ ptxlab::TensorMap`. Coordinates are those of the box's
// first element, dimension 0 (the innermost) first, where they are a multiple of 16 bytes; those beyond the
// rank are not looked at. `shared` and `barrier` are byte addresses in the shared window; `shared` is a
// multiple of 128.
#pragma once

namespace ptxlab {

struct alignas(128) TensorMap {
    unsigned long long words[16];
};

enum class Reduce { add, min, max, inc, dec, and_, or_, xor_ };

// Ordinary stores, to shared memory and to global memory, become visible to TMA, which works through another
// proxy. Each thread that stored calls this; then all of them meet in a barrier.
__device__ __forceinline__ void fence_proxy_async_all() { asm volatile("fence.proxy.async;" ::: "memory"); }

#define PTXLAB_TMA_COORDINATES "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4])

// Calls a macro with the name of the dimensionality and its list of coordinates.
#define PTXLAB_TMA_OF_RANK(CALL) \
    static_assert(rank >= 1 && rank <= 5, "tensors have 1 to 5 dimensions"); \
    if constexpr (rank == 1) CALL("1d", "{%0}"); \
    if constexpr (rank == 2) CALL("2d", "{%0, %1}"); \
    if constexpr (rank == 3) CALL("3d", "{%0, %1, %2}"); \
    if constexpr (rank == 4) CALL("4d", "{%0, %1, %2, %3}"); \
    if constexpr (rank == 5) CALL("5d", "{%0, %1, %2, %3, %4}")

// The barrier's transaction count goes down by the bytes of the whole box, out-of-bounds elements included.
template <int rank>
__device__ __forceinline__ void tma_load(unsigned shared, const TensorMap &map, const int (&c)[5],
                                         unsigned barrier)
{
#define PTXLAB_TMA_LOAD(dim, list) \
    asm volatile("cp.async.bulk.tensor." dim ".shared::cta.global.tile.mbarrier::complete_tx::bytes " \
                 "[%5], [%6, " list "], [%7];" ::PTXLAB_TMA_COORDINATES, \
                 "r"(shared), "l"(&map), "r"(barrier) \
                 : "memory")
    PTXLAB_TMA_OF_RANK(PTXLAB_TMA_LOAD);
#undef PTXLAB_TMA_LOAD
}

// The same by an im2col map: pixels one after the other through the map's bounding box, from the one at these
// coordinates on; each is taken `offsets` further on (of dimension 1 first, as many as there are between the
// innermost and the outermost).
template <int rank>
__device__ __forceinline__ void tma_load_im2col(unsigned shared, const TensorMap &map, const int (&c)[5],
                                                unsigned barrier, const unsigned short (&offsets)[3])
{
#define PTXLAB_TMA_IM2COL(dim, list, offset_list) \
    asm volatile("cp.async.bulk.tensor." dim ".shared::cta.global.im2col.mbarrier::complete_tx::bytes " \
                 "[%5], [%6, " list "], [%7], " offset_list ";" ::PTXLAB_TMA_COORDINATES, \
                 "r"(shared), "l"(&map), "r"(barrier), "h"(offsets[0]), "h"(offsets[1]), "h"(offsets[2]) \
                 : "memory")
    static_assert(rank >= 3 && rank <= 5, "im2col needs a dimension between the innermost and the outermost");
    if constexpr (rank == 3) PTXLAB_TMA_IM2COL("3d", "{%0, %1, %2}", "{%8}");
    if constexpr (rank == 4) PTXLAB_TMA_IM2COL("4d", "{%0, %1, %2, %3}", "{%8, %9}");
    if constexpr (rank == 5) PTXLAB_TMA_IM2COL("5d", "{%0, %1, %2, %3, %4}", "{%8, %9, %10}");
#undef PTXLAB_TMA_IM2COL
}

// Coordinates are 0 and more. Along dimension 0 the store clips at 16 bytes of global memory, not at the element.
template <int rank>
__device__ __forceinline__ void tma_store(const TensorMap &map, const int (&c)[5], unsigned shared)
{
#define PTXLAB_TMA_STORE(dim, list) \
    asm volatile("cp.async.bulk.tensor." dim ".global.shared::cta.tile.bulk_group [%5, " list "], [%6];" \
                 ::PTXLAB_TMA_COORDINATES, "l"(&map), "r"(shared) \
                 : "memory")
    PTXLAB_TMA_OF_RANK(PTXLAB_TMA_STORE);
#undef PTXLAB_TMA_STORE
}

#define PTXLAB_TMA_REDUCE(operation, dim, list) \
    asm volatile("cp.reduce.async.bulk.tensor." dim ".global.shared::cta." operation ".tile.bulk_group " \
                 "[%5, " list "], [%6];" ::PTXLAB_TMA_COORDINATES, "l"(&map), "r"(shared) \
                 : "memory")

// The type of the elements is the map's; which operations it has, is in PTX ISA and not checked by anything.
template <Reduce operation, int rank>
__device__ __forceinline__ void tma_reduce(const TensorMap &map, const int (&c)[5], unsigned shared)
{
#define PTXLAB_TMA_ADD(dim, list) PTXLAB_TMA_REDUCE("add", dim, list)
#define PTXLAB_TMA_MIN(dim, list) PTXLAB_TMA_REDUCE("min", dim, list)
#define PTXLAB_TMA_MAX(dim, list) PTXLAB_TMA_REDUCE("max", dim, list)
#define PTXLAB_TMA_INC(dim, list) PTXLAB_TMA_REDUCE("inc", dim, list)
#define PTXLAB_TMA_DEC(dim, list) PTXLAB_TMA_REDUCE("dec", dim, list)
#define PTXLAB_TMA_AND(dim, list) PTXLAB_TMA_REDUCE("and", dim, list)
#define PTXLAB_TMA_OR(dim, list) PTXLAB_TMA_REDUCE("or", dim, list)
#define PTXLAB_TMA_XOR(dim, list) PTXLAB_TMA_REDUCE("xor", dim, list)
    if constexpr (operation == Reduce::add) { PTXLAB_TMA_OF_RANK(PTXLAB_TMA_ADD); }
    if constexpr (operation == Reduce::min) { PTXLAB_TMA_OF_RANK(PTXLAB_TMA_MIN); }
    if constexpr (operation == Reduce::max) { PTXLAB_TMA_OF_RANK(PTXLAB_TMA_MAX); }
    if constexpr (operation == Reduce::inc) { PTXLAB_TMA_OF_RANK(PTXLAB_TMA_INC); }
    if constexpr (operation == Reduce::dec) { PTXLAB_TMA_OF_RANK(PTXLAB_TMA_DEC); }
    if constexpr (operation == Reduce::and_) { PTXLAB_TMA_OF_RANK(PTXLAB_TMA_AND); }
    if constexpr (operation == Reduce::or_) { PTXLAB_TMA_OF_RANK(PTXLAB_TMA_OR); }
    if constexpr (operation == Reduce::xor_) { PTXLAB_TMA_OF_RANK(PTXLAB_TMA_XOR); }
#undef PTXLAB_TMA_ADD
#undef PTXLAB_TMA_MIN
#undef PTXLAB_TMA_MAX
#undef PTXLAB_TMA_INC
#undef PTXLAB_TMA_DEC
#undef PTXLAB_TMA_AND
#undef PTXLAB_TMA_OR
#undef PTXLAB_TMA_XOR
}

template <int rank>
__device__ __forceinline__ void tma_prefetch(const TensorMap &map, const int (&c)[5])
{
#define PTXLAB_TMA_PREFETCH(dim, list) \
    asm volatile("cp.async.bulk.prefetch.tensor." dim ".L2.global.tile [%5, " list "];" \
                 ::PTXLAB_TMA_COORDINATES, "l"(&map) \
                 : "memory")
    PTXLAB_TMA_OF_RANK(PTXLAB_TMA_PREFETCH);
#undef PTXLAB_TMA_PREFETCH
}

// Makes a group of the stores and reductions that this thread issued since the last one.
__device__ __forceinline__ void tma_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until at most `pending` groups of this thread are unfinished: their data is written. With `read`, until
// it is read, so that the shared memory may be used again.
template <int pending, bool read>
__device__ __forceinline__ void tma_wait()
{
    static_assert(pending >= 0, "a number of groups");
    if constexpr (read) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
    if constexpr (!read) asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

#undef PTXLAB_TMA_REDUCE
#undef PTXLAB_TMA_OF_RANK
#undef PTXLAB_TMA_COORDINATES

}  // namespace ptxlab
