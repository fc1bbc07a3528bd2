// ld.shared and st.shared of 4, 8 and 16 bytes a lane, each one instruction.
// Source: PTX ISA, "Data Movement and Conversion Instructions: ld", "... st".
//
// `address` is a byte address in the shared window, a multiple of the bytes that are moved.
#pragma once

namespace ptxlab {

template <int registers>
__device__ __forceinline__ void load_shared(unsigned (&r)[registers], unsigned address)
{
    static_assert(registers == 1 || registers == 2 || registers == 4, "32, 64 or 128 bits");
    if constexpr (registers == 1)
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(r[0]) : "r"(address) : "memory");
    if constexpr (registers == 2)
        asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(address) : "memory");
    if constexpr (registers == 4)
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

template <int registers>
__device__ __forceinline__ void store_shared(unsigned address, const unsigned (&r)[registers])
{
    static_assert(registers == 1 || registers == 2 || registers == 4, "32, 64 or 128 bits");
    if constexpr (registers == 1)
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(r[0]) : "memory");
    if constexpr (registers == 2)
        asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(r[0]), "r"(r[1]) : "memory");
    if constexpr (registers == 4)
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
                     ::"r"(address), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}

}  // namespace ptxlab
