// stmatrix, every form that PTX has: 8x8 and 16x8 matrices from registers into shared memory.
// Source: PTX ISA, "Warp-level matrix store instruction: stmatrix".
#pragma once

namespace ptxlab {

enum class StMatrix { m8n8, m16n8 };

#define PTXLAB_STMATRIX_1(modifiers) \
    asm volatile("stmatrix.sync.aligned." modifiers " [%0], {%1};" ::"r"(address), "r"(r[0]) : "memory")
#define PTXLAB_STMATRIX_2(modifiers) \
    asm volatile("stmatrix.sync.aligned." modifiers " [%0], {%1, %2};" \
                 ::"r"(address), "r"(r[0]), "r"(r[1]) : "memory")
#define PTXLAB_STMATRIX_4(modifiers) \
    asm volatile("stmatrix.sync.aligned." modifiers " [%0], {%1, %2, %3, %4};" \
                 ::"r"(address), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory")

// `address` is a byte address in the shared window, a multiple of 16: lane 8 * j + q supplies row q of matrix j
// as it lies in memory, lanes beyond the last row are ignored. m8n8 has elements of 16 bits, m16n8 of 8.
template <StMatrix shape, bool trans, int num>
__device__ __forceinline__ void stmatrix(unsigned address, const unsigned (&r)[num])
{
    static_assert(num == 1 || num == 2 || num == 4, "x1, x2, x4");
    static_assert(shape == StMatrix::m8n8 || trans, "m16n8 must be transposed");

    if constexpr (shape == StMatrix::m16n8) {
        if constexpr (num == 1) PTXLAB_STMATRIX_1("m16n8.x1.trans.shared.b8");
        if constexpr (num == 2) PTXLAB_STMATRIX_2("m16n8.x2.trans.shared.b8");
        if constexpr (num == 4) PTXLAB_STMATRIX_4("m16n8.x4.trans.shared.b8");
    } else if constexpr (trans) {
        if constexpr (num == 1) PTXLAB_STMATRIX_1("m8n8.x1.trans.shared.b16");
        if constexpr (num == 2) PTXLAB_STMATRIX_2("m8n8.x2.trans.shared.b16");
        if constexpr (num == 4) PTXLAB_STMATRIX_4("m8n8.x4.trans.shared.b16");
    } else {
        if constexpr (num == 1) PTXLAB_STMATRIX_1("m8n8.x1.shared.b16");
        if constexpr (num == 2) PTXLAB_STMATRIX_2("m8n8.x2.shared.b16");
        if constexpr (num == 4) PTXLAB_STMATRIX_4("m8n8.x4.shared.b16");
    }
}

#undef PTXLAB_STMATRIX_1
#undef PTXLAB_STMATRIX_2
#undef PTXLAB_STMATRIX_4

}  // namespace ptxlab
