// From the accumulators of mma.sync m16n8k16 to C. Of a product of 16 x 8 a lane holds four sums: the first
// two are in row lane / 4, columns 2 (lane % 4) and the next; the other two are 8 rows below.
#pragma once

#include <ptxlab/gemm_edges.cuh>

namespace ptxlab {

// Writes a warp's tile, of TILES_M x TILES_N products; `target` starts at its first row and column.
template <int TILES_M, int TILES_N, typename Out>
__device__ __forceinline__ void write_fragments(const float (&sums)[TILES_M][TILES_N][4],
                                                const TileTarget<Out>& target)
{
    const int row = threadIdx.x % 32 / 4, col = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < TILES_M; ++i) {
#pragma unroll
        for (int j = 0; j < TILES_N; ++j) {
            target.template write<2>(&sums[i][j][0], 16 * i + row, 8 * j + col);
            target.template write<2>(&sums[i][j][2], 16 * i + row + 8, 8 * j + col);
        }
    }
}

}  // namespace ptxlab
