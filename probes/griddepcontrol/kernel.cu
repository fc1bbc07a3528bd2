// Launched twice. The first launch, the primary, waits a bounded time for a sign of life of the second, writes its
// data, and ends. The second, the dependent, gives the sign, waits for the primary as told, and passes on what it
// reads of the data.
//
// Macros: KERNEL, LAUNCH (where the primary calls launch_dependents: 0 nowhere, 1 before it waits, 2 after its
// last write), WAIT (1: the dependent calls griddepcontrol.wait).

#include <ptxlab/griddepcontrol.cuh>

extern "C" __global__ void __launch_bounds__(32)
KERNEL(unsigned dependent,              // 0: this is the primary
       unsigned callers,                // blocks of the primary that call launch_dependents
       const unsigned *values,          // [blocks][lane]
       volatile unsigned *sign,         // [1]: 0 until the dependent runs
       unsigned *data,                  // [blocks][lane]: what the primary writes
       unsigned *met,                   // [blocks]: whether the primary saw the sign
       unsigned *passed_on)             // [blocks][lane]: what the dependent read of the data
{
    using namespace ptxlab;
    constexpr unsigned POLLS = 20000;    // of about 2 microseconds each: many times what a launch takes
    const unsigned place = blockIdx.x * 32 + threadIdx.x;
    if (dependent) {
        if (place == 0)
            *sign = 1;
        __threadfence();
#if WAIT
        grid_dependency_wait();
#endif
        passed_on[place] = data[place];
        return;
    }
#if LAUNCH == 1
    if (blockIdx.x < callers)
        launch_dependents();
#endif
    bool seen = false;
#pragma unroll 1
    for (unsigned poll = 0; poll < POLLS && !seen; ++poll) {
        seen = *sign;
        if (!seen)
            __nanosleep(2000);
    }
    data[place] = values[place];
    if (threadIdx.x == 0)
        met[blockIdx.x] = seen;
#if LAUNCH == 2
    __threadfence();
    if (blockIdx.x < callers)
        launch_dependents();
#endif
}
