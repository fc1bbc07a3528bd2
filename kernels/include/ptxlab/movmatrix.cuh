// movmatrix: transposes an 8x8 matrix of 16-bit elements from one register of every lane into another.
// Source: PTX ISA, "Warp-level matrix transpose instruction: movmatrix".
#pragma once

namespace ptxlab {

__device__ __forceinline__ unsigned movmatrix(unsigned source)
{
    unsigned result;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(source));
    return result;
}

}  // namespace ptxlab
