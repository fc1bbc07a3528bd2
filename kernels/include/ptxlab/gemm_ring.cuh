// A ring of stages in shared memory: TMA fills one stage after the other, warps empty them in the same order.
//
// Each stage has two mbarriers. One phase of "full" ends when all bytes of the stage have landed; one phase
// of "empty" ends when every warp that reads the stage has said so. Who fills waits for "empty", who reads
// waits for "full", and both count for themselves which use of the stage is next: a barrier knows no more
// than whether its current phase is odd or even, so a Turn must be carried on from tile to tile, never
// restarted.
#pragma once

#include <ptxlab/mbarrier.cuh>

namespace ptxlab {

// Which stage is next, and the parity of the phase that its "full" barrier is in.
template <int STAGES>
struct Turn {
    int stage = 0;
    unsigned parity = 0;

    __device__ __forceinline__ void advance()
    {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }

    // As many times.
    __device__ __forceinline__ void advance(int times)
    {
        parity ^= (stage + times) / STAGES & 1;
        stage = (stage + times) % STAGES;
    }
};

template <WaitScope scope = WaitScope::cta>
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity)
{
    while (!mbarrier_try_wait<scope>(barrier, parity)) {
    }
}

template <int STAGES>
struct Ring {
    static constexpr int BYTES = STAGES * 2 * 8;
    unsigned barriers;  // byte address of the full ones, which the empty ones follow

    __device__ __forceinline__ explicit Ring(unsigned barriers) : barriers(barriers) {}

    __device__ __forceinline__ unsigned full(int stage) const { return barriers + 8 * stage; }
    __device__ __forceinline__ unsigned empty(int stage) const { return barriers + 8 * (STAGES + stage); }

    // One thread does it. `readers` is how many arrivals empty a stage; one, with the bytes, fills it.
    __device__ __forceinline__ void init(unsigned readers) const
    {
#pragma unroll 1
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(full(stage), 1);
            mbarrier_init(empty(stage), readers);
        }
        mbarrier_init_fence();
    }

    // Waits until the stage may be overwritten. No barrier has ended a phase at first, and a wait for the
    // parity before its first phase returns at once: the first round finds all stages empty.
    __device__ __forceinline__ void wait_empty(const Turn<STAGES>& turn) const
    {
        mbarrier_wait(empty(turn.stage), turn.parity ^ 1);
    }

    // Waits until all stages are empty: until then readers, those of other blocks of the cluster too, may
    // arrive at the barriers, and the block's shared memory must stay.
    __device__ __forceinline__ void drain(Turn<STAGES> turn) const
    {
#pragma unroll 1
        for (int stage = 0; stage < STAGES; ++stage, turn.advance()) {
            mbarrier_wait<WaitScope::cluster>(empty(turn.stage), turn.parity ^ 1);
        }
    }

    __device__ __forceinline__ void wait_full(const Turn<STAGES>& turn) const
    {
        mbarrier_wait(full(turn.stage), turn.parity);
    }
};

}  // namespace ptxlab
