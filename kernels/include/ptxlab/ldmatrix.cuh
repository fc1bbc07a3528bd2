// ldmatrix, every form that PTX has: 8x8, 16x16 and 8x16 matrices from shared memory into registers.
// Source: PTX ISA, "Warp-level matrix load instruction: ldmatrix".
#pragma once

namespace ptxlab {

enum class LdMatrix { m8n8, m16n16, m8n16 };
enum class LdMatrixType { b16, b8, b6x16_p32, b4x16_p64 };

#define PTXLAB_LDMATRIX_1(modifiers) \
    asm volatile("ldmatrix.sync.aligned." modifiers " {%0}, [%1];" \
                 : "=r"(r[0]) : "r"(address) : "memory")
#define PTXLAB_LDMATRIX_2(modifiers) \
    asm volatile("ldmatrix.sync.aligned." modifiers " {%0, %1}, [%2];" \
                 : "=r"(r[0]), "=r"(r[1]) : "r"(address) : "memory")
#define PTXLAB_LDMATRIX_4(modifiers) \
    asm volatile("ldmatrix.sync.aligned." modifiers " {%0, %1, %2, %3}, [%4];" \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory")

// `address` is a byte address in the shared window, a multiple of 16. Lane rows * j + q supplies row q of
// matrix j; lanes beyond the last row are ignored (on sm_75 they must still hold valid addresses).
template <LdMatrix shape, LdMatrixType type, int num, bool trans, int registers>
__device__ __forceinline__ void ldmatrix(unsigned (&r)[registers], unsigned address)
{
    constexpr bool m8n8 = shape == LdMatrix::m8n8, m16n16 = shape == LdMatrix::m16n16;
    static_assert(num == 1 || num == 2 || (num == 4 && !m16n16), "x1, x2, x4; m16n16 has no x4");
    static_assert(registers == (m16n16 ? 2 * num : num), "a register a matrix, two for m16n16");
    static_assert(m8n8 == (type == LdMatrixType::b16), "m8n8 takes b16, the other shapes do not");
    static_assert(!m16n16 || trans, "m16n16 must be transposed");
    static_assert(m8n8 || m16n16 || (!trans && type != LdMatrixType::b8), "m8n16: padded types, no trans");

    if constexpr (m8n8) {
        if constexpr (num == 1 && !trans) PTXLAB_LDMATRIX_1("m8n8.x1.shared.b16");
        if constexpr (num == 2 && !trans) PTXLAB_LDMATRIX_2("m8n8.x2.shared.b16");
        if constexpr (num == 4 && !trans) PTXLAB_LDMATRIX_4("m8n8.x4.shared.b16");
        if constexpr (num == 1 && trans) PTXLAB_LDMATRIX_1("m8n8.x1.trans.shared.b16");
        if constexpr (num == 2 && trans) PTXLAB_LDMATRIX_2("m8n8.x2.trans.shared.b16");
        if constexpr (num == 4 && trans) PTXLAB_LDMATRIX_4("m8n8.x4.trans.shared.b16");
    } else if constexpr (m16n16 && type == LdMatrixType::b8) {
        if constexpr (num == 1) PTXLAB_LDMATRIX_2("m16n16.x1.trans.shared.b8");
        if constexpr (num == 2) PTXLAB_LDMATRIX_4("m16n16.x2.trans.shared.b8");
    } else if constexpr (m16n16 && type == LdMatrixType::b6x16_p32) {
        if constexpr (num == 1) PTXLAB_LDMATRIX_2("m16n16.x1.trans.shared.b8x16.b6x16_p32");
        if constexpr (num == 2) PTXLAB_LDMATRIX_4("m16n16.x2.trans.shared.b8x16.b6x16_p32");
    } else if constexpr (m16n16) {
        if constexpr (num == 1) PTXLAB_LDMATRIX_2("m16n16.x1.trans.shared.b8x16.b4x16_p64");
        if constexpr (num == 2) PTXLAB_LDMATRIX_4("m16n16.x2.trans.shared.b8x16.b4x16_p64");
    } else if constexpr (type == LdMatrixType::b6x16_p32) {
        if constexpr (num == 1) PTXLAB_LDMATRIX_1("m8n16.x1.shared.b8x16.b6x16_p32");
        if constexpr (num == 2) PTXLAB_LDMATRIX_2("m8n16.x2.shared.b8x16.b6x16_p32");
        if constexpr (num == 4) PTXLAB_LDMATRIX_4("m8n16.x4.shared.b8x16.b6x16_p32");
    } else {
        if constexpr (num == 1) PTXLAB_LDMATRIX_1("m8n16.x1.shared.b8x16.b4x16_p64");
        if constexpr (num == 2) PTXLAB_LDMATRIX_2("m8n16.x2.shared.b8x16.b4x16_p64");
        if constexpr (num == 4) PTXLAB_LDMATRIX_4("m8n16.x4.shared.b8x16.b4x16_p64");
    }
}

#undef PTXLAB_LDMATRIX_1
#undef PTXLAB_LDMATRIX_2
#undef PTXLAB_LDMATRIX_4

}  // namespace ptxlab
