// One warpgroup gives registers back, two others take them and then hold more values at once than they had
// registers for at the start. Values that were in registers before must be there afterwards.
//
// Each value of the two carries its number above its thread, and is stored without the number.
//
// Macros: KERNEL, BOUND (what is said about the launch: 2 its threads and blocks, 1 its threads, 0 nothing),
// DEC, INC (registers of a thread afterwards), HOLD (values that a thread of the two holds at once).

#include <ptxlab/setmaxnreg.cuh>

#if BOUND == 2
#define LAUNCH __launch_bounds__(384, 1)
#elif BOUND == 1
#define LAUNCH __launch_bounds__(384)
#else
#define LAUNCH
#endif

extern "C" __global__ void LAUNCH
KERNEL(const unsigned *values,    // [HOLD][256]
       const unsigned *few,       // [8][128]
       unsigned *held,            // [HOLD][256], the thread if all is well
       unsigned *kept)            // [8][128]
{
    const unsigned thread = threadIdx.x;
    if (thread < 128) {
        unsigned own[8];
        for (unsigned i = 0; i < 8; ++i)
            own[i] = few[i * 128 + thread];
        ptxlab::setmaxnreg_dec<DEC>();
        for (unsigned i = 0; i < 8; ++i)
            kept[i * 128 + thread] = own[i];
    } else {
        unsigned own[HOLD];
        for (unsigned i = 0; i < 8; ++i)    // these are in registers before there are more of them
            own[i] = values[i * 256 + thread - 128];
        ptxlab::setmaxnreg_inc<INC>();
#pragma unroll
        for (unsigned i = 8; i < HOLD; ++i)
            own[i] = values[i * 256 + thread - 128];
        asm volatile("bar.sync 1, 256;" ::: "memory");    // no store before the last load
#pragma unroll
        for (unsigned i = 0; i < HOLD; ++i)
            held[i * 256 + thread - 128] = own[i] - (i << 16);    // what is recorded repeats itself
    }
    asm volatile("bar.sync 2, 384;" ::: "memory");    // nobody ends while others wait for registers
}
#undef LAUNCH
