// C by TMA: a warp lays 16 rows of its sums into shared memory, panel by panel of 128 bytes, and one of its
// lanes has TMA write each panel, while the warp goes on. Panels are swizzled, so that rows do not meet in a
// bank; TMA takes the swizzle out again, and leaves out what lies outside of C.
#pragma once

#include <ptxlab/gemm_output.cuh>
#include <ptxlab/stmatrix.cuh>
#include <ptxlab/tma.cuh>

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

// Two neighbours of C, at an even place.
__device__ __forceinline__ float2 load_pair(const half* from)
{
    return __half22float2(*reinterpret_cast<const half2*>(from));
}
__device__ __forceinline__ float2 load_pair(const __nv_bfloat16* from)
{
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(from));
}
__device__ __forceinline__ float2 load_pair(const float* from) { return *reinterpret_cast<const float2*>(from); }

// Sums on their way to C, which is read only where SCALED says that factors are not 1 and 0, and beta is not 0.
template <typename Out, bool SCALED>
struct Scaling {
    const Out* c;
    int m, n;
    float alpha, beta;

    // The pair that belongs to (row, col) and its right neighbour; rows of C are even.
    __device__ __forceinline__ float2 operator()(float2 pair, int row, int col) const
    {
        if constexpr (SCALED) {
            pair.x *= alpha, pair.y *= alpha;
            if (beta != 0.0f && row < m && col < n) {
                const float2 before = load_pair(c + static_cast<size_t>(row) * n + col);
                pair.x += beta * before.x, pair.y += beta * before.y;
            }
        }
        return pair;
    }
};

template <typename Out, bool SCALED, int BUFFERS>
struct PanelStore {
    static constexpr int COLS = 128 / sizeof(Out);  // of a panel
    static constexpr int BYTES = BUFFERS * PANEL_BYTES;
    unsigned shared;  // of this warp's buffers, a multiple of 1024
    Scaling<Out, SCALED> scaling;
    int buffer = 0;

    // Starts the store of a warp's 16 rows of PARTS products of 64 x N side by side; (row, col) is the first.
    template <int N, int PARTS>
    __device__ __forceinline__ void store(const TensorMap& map, const unsigned (&d)[PARTS][N / 2], int row, int col)
    {
        static_assert(N * PARTS % COLS == 0, "whole panels");
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int panel = 0; panel < N * PARTS / COLS; ++panel) {
            const unsigned place = shared + buffer * PANEL_BYTES;
            if (lane == 0) tma_wait<BUFFERS - 1, true>();  // what lay there before has been read
            __syncwarp();
            lay<N, PARTS>(place, d, panel, row, col);
            fence_proxy_async();  // each lane's own writes, before the lane that has TMA read them
            __syncwarp();
            if (lane == 0) {
                if (row < scaling.m && col + panel * COLS < scaling.n)
                    tma_store<2>(map, {col + panel * COLS, row, 0, 0, 0}, place);
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
    template <int N, int PARTS>
    __device__ __forceinline__ void lay(unsigned place, const unsigned (&d)[PARTS][N / 2], int panel, int row,
                                        int col) const
    {
        constexpr int WIDTH = N / 8;  // of a part, in columns of 8
        const int lane = threadIdx.x % 32;
        const auto pair = [&](int j, int half) {
            return scaling(pair_of_sums(d[j / WIDTH], j % WIDTH, half), row + lane / 4 + 8 * half, col + 8 * j + lane % 4 * 2);
        };
        if constexpr (sizeof(Out) == 2) {
            // Matrices of an stmatrix.x4: rows 0-7 and 8-15 of 8 columns, then of the next 8. Lanes 0-15 have
            // the addresses of the first two, row by row.
            const unsigned line = place + lane % 16 * 128;
#pragma unroll
            for (int j = 0; j < COLS / 8; j += 2) {
                const int first = panel * COLS / 8 + j;
                const unsigned r[4] = {packed(pair(first, 0), Out()), packed(pair(first, 1), Out()),
                                       packed(pair(first + 1, 0), Out()), packed(pair(first + 1, 1), Out())};
                stmatrix<StMatrix::m8n8, false, 4>(line + ((j + lane / 16) ^ lane % 8) * 16, r);
            }
        } else {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
#pragma unroll
                for (int j = 0; j < COLS / 8; ++j) {
                    const float2 both = pair(panel * COLS / 8 + j, half);
                    const int chunk = 2 * j + lane % 4 / 2;
                    const unsigned at = place + (lane / 4 + 8 * half) * 128 + (chunk ^ lane / 4) * 16 + lane % 2 * 8;
                    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(both.x), "f"(both.y) : "memory");
                }
            }
        }
    }
};

}  // namespace ptxlab
