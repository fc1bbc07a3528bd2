// Bulk copies: one thread has a run of bytes copied between global and shared memory, or into the shared memory
// of another block of the cluster, or combined with what lies there. From sm_90 on.
// Source: PTX ISA, "Data movement and conversion instructions: cp.async.bulk", "cp.reduce.async.bulk",
// "cp.async.bulk.prefetch".
//
// All addresses and sizes are multiples of 16. What goes to global memory is waited for in groups, as TMA's
// stores are (tma_commit, tma_wait); what goes to shared memory counts its bytes at an mbarrier beside it.
#pragma once

#include <ptxlab/tma.cuh>

namespace ptxlab {

// Ordinary writes of this thread to shared memory become visible to bulk copies and TMA, once a barrier follows.
__device__ __forceinline__ void fence_proxy_async_shared()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void bulk_load(unsigned shared, const void *global, unsigned bytes, unsigned barrier)
{
    asm volatile("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(shared), "l"(global), "r"(bytes), "r"(barrier)
                 : "memory");
}

__device__ __forceinline__ void bulk_store(void *global, unsigned shared, unsigned bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 ::"l"(global), "r"(shared), "r"(bytes)
                 : "memory");
}

// `there` and `barrier_there` are addresses in the window of the cluster, of the same block.
__device__ __forceinline__ void bulk_send(unsigned there, unsigned shared, unsigned bytes, unsigned barrier_there)
{
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(there), "r"(shared), "r"(bytes), "r"(barrier_there)
                 : "memory");
}

__device__ __forceinline__ void bulk_prefetch(const void *global, unsigned bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}

enum class BulkType { b32, u32, s32, b64, u64, s64, f16, bf16, f32, f64 };

#define PTXLAB_REDUCTIONS_ANYWHERE(CALL) \
    CALL(add, "add.u32", u32) CALL(add, "add.s32", s32) CALL(add, "add.u64", u64) \
    CALL(min, "min.u32", u32) CALL(min, "min.s32", s32) CALL(max, "max.u32", u32) CALL(max, "max.s32", s32) \
    CALL(inc, "inc.u32", u32) CALL(dec, "dec.u32", u32) \
    CALL(and_, "and.b32", b32) CALL(or_, "or.b32", b32) CALL(xor_, "xor.b32", b32)
#define PTXLAB_REDUCTIONS_IN_GLOBAL(CALL) \
    CALL(add, "add.noftz.f16", f16) CALL(add, "add.noftz.bf16", bf16) \
    CALL(add, "add.f32", f32) CALL(add, "add.f64", f64) \
    CALL(min, "min.u64", u64) CALL(min, "min.s64", s64) CALL(min, "min.f16", f16) CALL(min, "min.bf16", bf16) \
    CALL(max, "max.u64", u64) CALL(max, "max.s64", s64) CALL(max, "max.f16", f16) CALL(max, "max.bf16", bf16) \
    CALL(and_, "and.b64", b64) CALL(or_, "or.b64", b64) CALL(xor_, "xor.b64", b64)

#define PTXLAB_IS(name, text, of) || (operation == Reduce::name && type == BulkType::of)
template <Reduce operation, BulkType type>
inline constexpr bool bulk_reduces_shared = false PTXLAB_REDUCTIONS_ANYWHERE(PTXLAB_IS);
template <Reduce operation, BulkType type>
inline constexpr bool bulk_reduces_global =
    bulk_reduces_shared<operation, type> PTXLAB_REDUCTIONS_IN_GLOBAL(PTXLAB_IS);
#undef PTXLAB_IS

// Each element in global memory becomes itself combined with the one in shared memory.
template <Reduce operation, BulkType type>
__device__ __forceinline__ void bulk_reduce(void *global, unsigned shared, unsigned bytes)
{
    static_assert(bulk_reduces_global<operation, type>, "no such reduction in global memory");
#define PTXLAB_REDUCE(name, text, of) \
    if constexpr (operation == Reduce::name && type == BulkType::of) \
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group." text " [%0], [%1], %2;" \
                     ::"l"(global), "r"(shared), "r"(bytes) \
                     : "memory");
    PTXLAB_REDUCTIONS_ANYWHERE(PTXLAB_REDUCE)
    PTXLAB_REDUCTIONS_IN_GLOBAL(PTXLAB_REDUCE)
#undef PTXLAB_REDUCE
}

// The same in the shared memory of a block of the cluster.
template <Reduce operation, BulkType type>
__device__ __forceinline__ void bulk_send_reduce(unsigned there, unsigned shared, unsigned bytes,
                                                 unsigned barrier_there)
{
    static_assert(bulk_reduces_shared<operation, type>, "no such reduction in shared memory");
#define PTXLAB_REDUCE(name, text, of) \
    if constexpr (operation == Reduce::name && type == BulkType::of) \
        asm volatile("cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes." text \
                     " [%0], [%1], %2, [%3];" ::"r"(there), "r"(shared), "r"(bytes), "r"(barrier_there) \
                     : "memory");
    PTXLAB_REDUCTIONS_ANYWHERE(PTXLAB_REDUCE)
#undef PTXLAB_REDUCE
}

#undef PTXLAB_REDUCTIONS_ANYWHERE
#undef PTXLAB_REDUCTIONS_IN_GLOBAL

}  // namespace ptxlab
