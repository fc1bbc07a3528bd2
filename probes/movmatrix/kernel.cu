// Each lane of one warp hands in a register, movmatrix transposes what the warp holds, and the result is
// written out. Macros: KERNEL, TIMES (how often it is transposed).

#include <ptxlab/movmatrix.cuh>

extern "C" __global__ void KERNEL(const unsigned *source,    // [32]
                                  unsigned *registers)       // [32]
{
    unsigned held = source[threadIdx.x];
#pragma unroll
    for (int i = 0; i < TIMES; ++i)
        held = ptxlab::movmatrix(held);
    registers[threadIdx.x] = held;
}
