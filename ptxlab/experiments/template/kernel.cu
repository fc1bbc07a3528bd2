// One warp: every lane hands in its value and receives that of another lane.
//
// Macros: KERNEL, MASK (the lanes' numbers differ in these bits).

extern "C" __global__ void KERNEL(const unsigned *given, unsigned *received)
{
    const unsigned lane = threadIdx.x;
    received[lane] = __shfl_xor_sync(0xffffffffu, given[lane], MASK);
}
