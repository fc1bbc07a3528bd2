// mma.sync m16n8k16 for a GEMM's inner loop: 16-bit operands, f32 sums, one function for each operand type.
// (mma.cuh has every form, with arrays padded for its macro; here the arrays are exactly the fragments.)
// Source: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace ptxlab {

#define PTXLAB_MMA_M16N8K16(types)                                                                         \
    asm volatile("mma.sync.aligned.m16n8k16.row.col." types                                                \
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                        \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

// d += a x b, for the whole warp. T says what the 16-bit halves of the registers are.
template <typename T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]);

template <>
__device__ __forceinline__ void mma_m16n8k16<half>(float (&d)[4], const unsigned (&a)[4],
                                                   const unsigned (&b)[2])
{
    PTXLAB_MMA_M16N8K16("f32.f16.f16.f32");
}

template <>
__device__ __forceinline__ void mma_m16n8k16<__nv_bfloat16>(float (&d)[4], const unsigned (&a)[4],
                                                            const unsigned (&b)[2])
{
    PTXLAB_MMA_M16N8K16("f32.bf16.bf16.f32");
}

#undef PTXLAB_MMA_M16N8K16

}  // namespace ptxlab
