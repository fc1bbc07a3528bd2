// One warp copies a tile into shared memory, each lane supplies one address, and the registers that ldmatrix
// fills are written out. Block x takes lane-to-address map x; block y takes bit plane y of the coordinates
// (4-, 6- and 8-bit elements cannot hold a whole coordinate at once).
//
// Macros: KERNEL, SHAPE (m8n8, m16n16, m8n16), NUM (matrices), REGISTERS (of each lane), TRANS (0 or 1),
// TYPE (b16, b8, b6x16_p32, b4x16_p64).

#include <ptxlab/ldmatrix.cuh>

extern "C" __global__ void KERNEL(const uint4 *tile,            // [planes][chunks], as it lies in memory
                                  const unsigned *addresses,    // [maps][32] byte offsets into the tile
                                  unsigned *registers,          // [planes][maps][32][REGISTERS]
                                  unsigned chunks)              // 16-byte chunks of one plane
{
    extern __shared__ __align__(1024) uint4 shared[];
    const unsigned lane = threadIdx.x;
    const unsigned map = blockIdx.x, plane = blockIdx.y;

    for (unsigned i = lane; i < chunks; i += 32)
        shared[i] = tile[plane * chunks + i];
    __syncwarp();

    const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    unsigned loaded[REGISTERS];
    ptxlab::ldmatrix<ptxlab::LdMatrix::SHAPE, ptxlab::LdMatrixType::TYPE, NUM, TRANS>(
        loaded, base + addresses[map * 32 + lane]);

    for (unsigned r = 0; r < REGISTERS; ++r)
        registers[((plane * gridDim.x + map) * 32 + lane) * REGISTERS + r] = loaded[r];
}
