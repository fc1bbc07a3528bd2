// Warps copy a tile into shared memory through a device function that says where each byte lies, and read it
// with ldmatrix through the same function. Which instructions a warp runs is strided by the number of warps.
//
// Macros: KERNEL, PLACED (the device function unsigned placed(unsigned offset), as text), NUM (matrices),
// TRANS (0 or 1).

#include <ptxlab/ldmatrix.cuh>

PLACED

extern "C" __global__ void KERNEL(const uint4 *tile,            // [chunks], as it would lie without a swizzle
                                  const unsigned *offsets,      // [instructions][32] bytes, likewise
                                  unsigned *registers,          // [instructions][32][NUM]
                                  unsigned chunks, unsigned instructions)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;

    // Swizzles repeat after up to 8 KB: the tile's base is a multiple of that.
    const unsigned start = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    const unsigned base = (start + 8191) / 8192 * 8192;

    for (unsigned i = threadIdx.x; i < chunks; i += blockDim.x)
        *reinterpret_cast<uint4 *>(shared + (base - start) + placed(16 * i)) = tile[i];
    __syncthreads();

#pragma unroll 1
    for (unsigned i = warp; i < instructions; i += warps) {
        unsigned loaded[NUM];
        ptxlab::ldmatrix<ptxlab::LdMatrix::m8n8, ptxlab::LdMatrixType::b16, NUM, TRANS>(
            loaded, base + placed(offsets[i * 32 + lane]));
        for (unsigned r = 0; r < NUM; ++r)
            registers[(i * 32 + lane) * NUM + r] = loaded[r];
    }
}
