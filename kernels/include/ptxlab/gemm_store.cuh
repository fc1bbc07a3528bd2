// C by TMA: a warp lays 16 rows of its sums into shared memory, panel by panel of 128 bytes (or of 64 or 32,
// where a tile is not whole panels of more), and one of its lanes has TMA write each panel, while the warp
// goes on. Panels are swizzled, so that rows do not meet in a bank; TMA takes the swizzle out again, and
// leaves out what lies outside of C.
#pragma once

#include <ptxlab/gemm_epilogue.cuh>
#include <ptxlab/stmatrix.cuh>
#include <ptxlab/tma_policy.cuh>
#include <ptxlab/wgmma.cuh>

namespace ptxlab {

constexpr int PANEL_ROWS = 16;
constexpr int PANEL_BYTES = PANEL_ROWS * 128;

__device__ __forceinline__ unsigned packed(float2 pair, half)
{
    const half2 both = __floats2half2_rn(pair.x, pair.y);
    return *reinterpret_cast<const unsigned*>(&both);
}
__device__ __forceinline__ unsigned packed(float2 pair, __nv_bfloat16)
{
    const __nv_bfloat162 both = __floats2bfloat162_rn(pair.x, pair.y);
    return *reinterpret_cast<const unsigned*>(&both);
}

template <typename Out, bool SCALED, int BUFFERS, bool BIAS = false, Activation ACTIVATION = Activation::none,
          Evict EVICT = Evict::normal, int PANEL_LINE = 128>
struct PanelStore {
    using OnTheWay = Epilogue<Out, SCALED, BIAS, ACTIVATION>;
    static constexpr int COLS = PANEL_LINE / sizeof(Out);  // of a panel
    static constexpr int BYTES = BUFFERS * PANEL_BYTES;
    unsigned shared;  // of this warp's buffers, a multiple of 1024
    OnTheWay epilogue;
    using Biases = typename OnTheWay::Two[COLS / 8];  // of a lane's columns of a panel
    int buffer = 0;

    // Starts the store of a warp's 16 rows of PARTS products of 64 x N side by side; (row, col) is the first.
    template <int N, int PARTS>
    __device__ __forceinline__ void store(const TensorMap& map, const unsigned (&d)[PARTS][N / 2], int row,
                                          int col)
    {
        static_assert(N * PARTS % COLS == 0, "whole panels");
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int panel = 0; panel < N * PARTS / COLS; ++panel) {
            const unsigned place = shared + buffer * PANEL_BYTES;
            Biases biases = {};
            epilogue.fetch(biases, col + panel * COLS + lane % 4 * 2);
            if (lane == 0) tma_wait<BUFFERS - 1, true>();  // what lay there before has been read
            __syncwarp();
            lay<N, PARTS>(place, d, biases, panel, row, col);
            fence_proxy_async();  // each lane's own writes, before the lane that has TMA read them
            __syncwarp();
            if (lane == 0) {
                if (row < epilogue.m && col + panel * COLS < epilogue.n)
                    tma_store(map, col + panel * COLS, row, place, CachePolicy<EVICT>());
                tma_commit();  // an empty group too: the groups are counted
            }
            buffer = buffer + 1 == BUFFERS ? 0 : buffer + 1;
        }
    }

    // Before the block ends: shared memory stays until it is read.
    static __device__ __forceinline__ void finish()
    {
        if (threadIdx.x % 32 == 0) tma_wait<0, true>();
    }

private:
    // Where 16 bytes of a row lie in the panel: the swizzle of so many bytes.
    static __device__ __forceinline__ unsigned swizzled(unsigned place, int row, int chunk)
    {
        return place + row * PANEL_LINE + (chunk ^ row / (128 / PANEL_LINE) % (PANEL_LINE / 16)) * 16;
    }

    template <int N, int PARTS>
    __device__ __forceinline__ void lay(unsigned place, const unsigned (&d)[PARTS][N / 2],
                                        const Biases& biases, int panel, int row, int col) const
    {
        constexpr int WIDTH = N / 8;  // of a part, in columns of 8
        const int lane = threadIdx.x % 32, first_row = row + lane / 4, first_col = col + lane % 4 * 2;
        const auto pair = [&](int i, int half) {
            const int j = panel * COLS / 8 + i;
            const float2 sums = pair_of_sums(d[j / WIDTH], j % WIDTH, half);
            return epilogue(sums, first_row + 8 * half, first_col + 8 * j, biases[i]);
        };
        if constexpr (sizeof(Out) == 2) {
            // Matrices of an stmatrix.x4: rows 0-7 and 8-15 of 8 columns, then of the next 8. Lanes 0-15 have
            // the addresses of the first two, row by row.
#pragma unroll
            for (int j = 0; j < COLS / 8; j += 2) {
                const unsigned r[4] = {packed(pair(j, 0), Out()), packed(pair(j, 1), Out()),
                                       packed(pair(j + 1, 0), Out()), packed(pair(j + 1, 1), Out())};
                stmatrix<StMatrix::m8n8, false, 4>(swizzled(place, lane % 16, j + lane / 16), r);
            }
        } else {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
#pragma unroll
                for (int j = 0; j < COLS / 8; ++j) {
                    const float2 both = pair(j, half);
                    const unsigned at = swizzled(place, lane / 4 + 8 * half, 2 * j + lane % 4 / 2);
                    asm volatile("st.shared.v2.f32 [%0], {%1, %2};"
                                 ::"r"(at + lane % 2 * 8), "f"(both.x), "f"(both.y)
                                 : "memory");
                }
            }
        }
    }
};

}  // namespace ptxlab
