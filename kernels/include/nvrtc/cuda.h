// What device code takes of the driver's header: NVRTC refuses the header itself, which declares host functions.
// A file that calls the driver has host code, and needs nvcc.
#pragma once
#include <cuda/std/cstdint>
using cuda::std::int16_t;
using cuda::std::int32_t;
using cuda::std::int64_t;
using cuda::std::int8_t;
using cuda::std::uint16_t;
using cuda::std::uint32_t;
using cuda::std::uint64_t;
using cuda::std::uint8_t;
using cuda::std::uintptr_t;
typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
typedef unsigned long long CUdeviceptr;

// 128 bytes that the driver makes; aligned as cuda.h of CUDA 13 has it.
typedef struct alignas(128) CUtensorMap_st {
    cuuint64_t opaque[16];
} CUtensorMap;
