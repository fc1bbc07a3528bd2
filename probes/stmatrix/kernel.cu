// One warp fills shared memory with ones, each lane supplies one address and the values of its registers, and
// what stmatrix has left in shared memory is written out. Block x takes lane-to-address map x; block y takes
// bit plane y of the values (8-bit elements cannot hold a whole name of their place).
//
// Macros: KERNEL, SHAPE (m8n8, m16n8), NUM (matrices), TRANS (0 or 1).

#include <ptxlab/stmatrix.cuh>

extern "C" __global__ void KERNEL(const unsigned *registers,    // [planes][32][NUM]
                                  const unsigned *addresses,    // [maps][32] byte offsets into the image
                                  uint4 *image,                 // [planes][maps][chunks]
                                  unsigned chunks)              // 16-byte chunks of one image
{
    extern __shared__ __align__(1024) uint4 shared[];
    const unsigned lane = threadIdx.x;
    const unsigned map = blockIdx.x, plane = blockIdx.y;

    for (unsigned i = lane; i < chunks; i += 32)
        shared[i] = uint4{~0u, ~0u, ~0u, ~0u};
    __syncwarp();

    unsigned values[NUM];
    for (unsigned r = 0; r < NUM; ++r)
        values[r] = registers[(plane * 32 + lane) * NUM + r];
    const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    ptxlab::stmatrix<ptxlab::StMatrix::SHAPE, TRANS>(base + addresses[map * 32 + lane], values);
    __syncwarp();

    for (unsigned i = lane; i < chunks; i += 32)
        image[(plane * gridDim.x + map) * chunks + i] = shared[i];
}
