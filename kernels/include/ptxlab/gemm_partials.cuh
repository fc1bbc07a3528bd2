// The sums of a tile that several blocks have parts of: they pass through device memory, and whoever comes
// last adds them up, in their order, so that the bits are the same whoever it is.
#pragma once

#include <ptxlab/gemm_output.cuh>
#include <ptxlab/gemm_schedule.cuh>

namespace ptxlab {

// Sums of products of T, as each of WARPS warps left them: [tile][part][warp][four sums][lane]; a lane has
// QUADS times four.
template <typename T, int WARPS, int QUADS>
struct Partials {
    uint4* sums;
    unsigned* arrived;  // parts of each warp's sums that are there
    int most;           // parts that a tile has room for

    // Leaves this warp's sums, and returns whether it is the last one: it then holds those of all parts.
    template <typename Sums>
    __device__ __forceinline__ bool reduce(Sums& sums_of_lane, const Work& work, int warp) const
    {
        unsigned* const own = &sums_of_lane[0][0][0];
        uint4* const to = of(work.tile, work.part, warp);
#pragma unroll
        for (int i = 0; i < QUADS; ++i)
            __stcg(to + 32 * i, make_uint4(own[4 * i], own[4 * i + 1], own[4 * i + 2], own[4 * i + 3]));
        if (!last(arrived + work.tile * WARPS + warp, work.parts)) return false;
#pragma unroll
        for (int i = 0; i < 4 * QUADS; ++i) own[i] = 0;  // its own come back too, in their place
#pragma unroll 1
        for (int other = 0; other < work.parts; ++other) {
            const uint4* const from = of(work.tile, other, warp);
#pragma unroll
            for (int i = 0; i < QUADS; ++i) {
                const uint4 more = __ldcg(from + 32 * i);
                own[4 * i] = added<T>(own[4 * i], more.x);
                own[4 * i + 1] = added<T>(own[4 * i + 1], more.y);
                own[4 * i + 2] = added<T>(own[4 * i + 2], more.z);
                own[4 * i + 3] = added<T>(own[4 * i + 3], more.w);
            }
        }
        return true;
    }

private:
    __device__ __forceinline__ uint4* of(int tile, int part, int warp) const
    {
        const size_t part_of_warp = (static_cast<size_t>(tile) * most + part) * WARPS + warp;
        return sums + part_of_warp * QUADS * 32 + threadIdx.x % 32;
    }

    // Counts this warp's part, which other blocks see from here on, and returns whether all are there. The
    // last one leaves the counter as the next launch wants it.
    static __device__ __forceinline__ bool last(unsigned* counter, unsigned parts)
    {
        __threadfence();
        __syncwarp();
        unsigned before = 0;
        if (threadIdx.x % 32 == 0) before = atomicAdd(counter, 1);
        const bool is_last = __shfl_sync(~0u, before, 0) == parts - 1;
        if (is_last && threadIdx.x % 32 == 0) *counter = 0;
        __threadfence();
        __syncwarp();  // lane 0 saw the others' arrivals: every lane reads after it
        return is_last;
    }
};

}  // namespace ptxlab
