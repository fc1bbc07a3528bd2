// The types of A and B: half, __nv_bfloat16, __nv_fp8_e4m3 and __nv_fp8_e5m2 are CUDA's, the others stand
// here.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace ptxlab {

using S8 = signed char;

// A float32 whose last 13 bits are zero; the tensor cores do not look at them.
struct Tf32 {
    float value;

    Tf32() = default;
    __device__ __forceinline__ explicit Tf32(float exact) : value(exact) {}
    __device__ __forceinline__ explicit operator float() const { return value; }
};

}  // namespace ptxlab
