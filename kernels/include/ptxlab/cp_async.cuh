// cp.async: copies from global to shared memory that pass by the registers, in groups that are waited for.
// Source: PTX ISA, "Data Movement and Conversion Instructions: cp.async", "cp.async.commit_group",
// "cp.async.wait_group / cp.async.wait_all", "... mbarrier: cp.async.mbarrier.arrive". From sm_80 on.
//
// `target` is a byte address in the shared window; it and `source` are multiples of the bytes of one copy.
// Waiting concerns the copies of the thread that waits: for those of others a barrier must follow.
#pragma once

namespace ptxlab {

// 16 bytes, past the L1 (.cg).
__device__ __forceinline__ void cp_async_16(unsigned target, const void* source)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target), "l"(source) : "memory");
}

// The same; only the first `bytes` (0 to 16) are read, and the rest is written as zeros.
__device__ __forceinline__ void cp_async_16(unsigned target, const void* source, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(bytes)
                 : "memory");
}

enum class CacheAt { ca, cg };    // in all levels, or in L2 alone

template <int size, CacheAt cache>
inline constexpr bool cp_async_exists = size == 16 || (cache == CacheAt::ca && (size == 4 || size == 8));

#define PTXLAB_CP_ASYNC_FORM static_assert(cp_async_exists<size, cache>, ".ca copies 4, 8 or 16 bytes, .cg 16")

template <int size, CacheAt cache>
__device__ __forceinline__ void cp_async(unsigned target, const void *source)
{
    PTXLAB_CP_ASYNC_FORM;
    if constexpr (cache == CacheAt::ca)
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(target), "l"(source), "n"(size)
                     : "memory");
    else
        asm volatile("cp.async.cg.shared.global [%0], [%1], %2;" ::"r"(target), "l"(source), "n"(size)
                     : "memory");
}

// The first `present` bytes (0 to size) are read, and the rest of the size is written as zeros.
template <int size, CacheAt cache>
__device__ __forceinline__ void cp_async_zero_fill(unsigned target, const void *source, unsigned present)
{
    PTXLAB_CP_ASYNC_FORM;
    if constexpr (cache == CacheAt::ca)
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(target), "l"(source), "n"(size),
                     "r"(present)
                     : "memory");
    else
        asm volatile("cp.async.cg.shared.global [%0], [%1], %2, %3;" ::"r"(target), "l"(source), "n"(size),
                     "r"(present)
                     : "memory");
}

// Where `ignored` is not 0, nothing is read, and zeros are written.
template <int size, CacheAt cache>
__device__ __forceinline__ void cp_async_ignore(unsigned target, const void *source, unsigned ignored)
{
    PTXLAB_CP_ASYNC_FORM;
    if constexpr (cache == CacheAt::ca)
        asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %3, 0;\ncp.async.ca.shared.global [%0], [%1], %2, p;\n}"
                     ::"r"(target), "l"(source), "n"(size), "r"(ignored)
                     : "memory");
    else
        asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %3, 0;\ncp.async.cg.shared.global [%0], [%1], %2, p;\n}"
                     ::"r"(target), "l"(source), "n"(size), "r"(ignored)
                     : "memory");
}

#undef PTXLAB_CP_ASYNC_FORM

// Closes the group of what this thread has started since the last one.
__device__ __forceinline__ void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until all but the latest `pending` groups of this thread have arrived.
template <int pending>
__device__ __forceinline__ void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// Waits for all that this thread has started, in a group or not.
__device__ __forceinline__ void cp_async_wait_all()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// Lets the mbarrier count an arrival once all copies that this thread has started are there: one of those that
// the barrier was initialised for (noinc), or one more, which is added to the current phase (not noinc).
template <bool noinc>
__device__ __forceinline__ void cp_async_arrive(unsigned barrier)
{
    if constexpr (noinc)
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
    else
        asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace ptxlab
