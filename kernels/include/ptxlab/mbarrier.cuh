// mbarrier: a 64-bit object in shared memory that counts arrivals and bytes, phase by phase.
// Source: PTX ISA, "Parallel synchronization and communication instructions: mbarrier". From sm_90 on (sm_80
// has a smaller one, without transactions, try_wait and arrivals from other blocks).
//
// `barrier` is the object's byte address in the shared window, a multiple of 8. An arrival from here releases,
// a wait acquires: what was written before the one is seen after the other.
#pragma once

namespace ptxlab {

enum class WaitScope { cta, cluster };

// Only an object that no one uses any more may be initialised again, and only after mbarrier_inval.
__device__ __forceinline__ void mbarrier_init(unsigned barrier, unsigned count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

// Makes initialised objects known to the blocks of the cluster and to asynchronous copies; a barrier of all
// their threads must follow.
__device__ __forceinline__ void mbarrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_inval(unsigned barrier)
{
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// What the object held when it was invalidated: while it lives, an H200 does not keep it where loads see it.
// Programs have no use for it: its layout is no part of PTX.
__device__ __forceinline__ unsigned long long mbarrier_object(unsigned barrier)
{
    unsigned long long object;
    asm volatile("ld.volatile.shared.b64 %0, [%1];" : "=l"(object) : "r"(barrier) : "memory");
    return object;
}

// Arrivals return the state from before them: mbarrier_test_wait takes it in place of a parity.
__device__ __forceinline__ unsigned long long mbarrier_arrive(unsigned barrier)
{
    unsigned long long state;
    asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(barrier) : "memory");
    return state;
}

__device__ __forceinline__ unsigned long long mbarrier_arrive(unsigned barrier, unsigned count)
{
    unsigned long long state;
    asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1], %2;"
                 : "=l"(state)
                 : "r"(barrier), "r"(count)
                 : "memory");
    return state;
}

// Bytes to come are added before the one arrival is counted, so that it cannot end the phase too early.
__device__ __forceinline__ unsigned long long mbarrier_arrive_expect_tx(unsigned barrier, unsigned bytes)
{
    unsigned long long state;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 %0, [%1], %2;"
                 : "=l"(state)
                 : "r"(barrier), "r"(bytes)
                 : "memory");
    return state;
}

// Arrives, and lowers the count of all phases to come.
__device__ __forceinline__ unsigned long long mbarrier_arrive_drop(unsigned barrier, unsigned count)
{
    unsigned long long state;
    asm volatile("mbarrier.arrive_drop.shared::cta.b64 %0, [%1], %2;"
                 : "=l"(state)
                 : "r"(barrier), "r"(count)
                 : "memory");
    return state;
}

__device__ __forceinline__ void mbarrier_expect_tx(unsigned barrier, unsigned bytes)
{
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

// What an asynchronous copy does when its bytes have landed.
__device__ __forceinline__ void mbarrier_complete_tx(unsigned barrier, unsigned bytes)
{
    asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

// The address, in the window of the cluster, of what lies at `address` in the shared memory of block `rank`.
__device__ __forceinline__ unsigned mbarrier_of_block(unsigned address, unsigned rank)
{
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

// Arrivals at an object of any block of the cluster return nothing.
__device__ __forceinline__ void mbarrier_arrive_remote(unsigned barrier_there)
{
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier_there)
                 : "memory");
}

__device__ __forceinline__ void mbarrier_arrive_drop_remote(unsigned barrier_there)
{
    asm volatile("mbarrier.arrive_drop.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier_there)
                 : "memory");
}

#define PTXLAB_WAIT(instruction, form, scope, constraint, phase) \
    asm volatile("{\n.reg .pred p;\nmbarrier." instruction form ".acquire." scope \
                 ".shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}" \
                 : "=r"(passed) \
                 : "r"(barrier), constraint(phase) \
                 : "memory")
#define PTXLAB_WAITS(instruction) \
    /* Whether the phase of this parity is complete: the one before the current phase, or the current. */ \
    template <WaitScope scope = WaitScope::cta> \
    __device__ __forceinline__ bool mbarrier_##instruction(unsigned barrier, unsigned parity) \
    { \
        unsigned passed; \
        if constexpr (scope == WaitScope::cta) PTXLAB_WAIT(#instruction, ".parity", "cta", "r", parity); \
        if constexpr (scope == WaitScope::cluster) PTXLAB_WAIT(#instruction, ".parity", "cluster", "r", parity); \
        return passed != 0; \
    } \
    /* Whether the phase is complete in which an arrival returned this state. */ \
    __device__ __forceinline__ bool mbarrier_##instruction##_state(unsigned barrier, unsigned long long state) \
    { \
        unsigned passed; \
        PTXLAB_WAIT(#instruction, "", "cta", "l", state); \
        return passed != 0; \
    }
PTXLAB_WAITS(test_wait)    // answers at once
PTXLAB_WAITS(try_wait)     // may sleep for a while, which the device decides, before it says no
#undef PTXLAB_WAITS
#undef PTXLAB_WAIT

}  // namespace ptxlab
