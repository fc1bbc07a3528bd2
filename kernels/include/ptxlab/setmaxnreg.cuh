// setmaxnreg: a warpgroup gives registers back to the pool of its block, or takes more from it.
// Source: PTX ISA, "Miscellaneous instructions: setmaxnreg". From sm_90a on, with the a or f suffix.
//
// It takes effect only in a kernel whose number of registers at the start the compiler knows:
// __launch_bounds__(threads, blocks). All warps of a warpgroup execute it.
#pragma once

namespace ptxlab {

template <int registers>
constexpr bool setmaxnreg_count = registers % 8 == 0 && registers >= 24 && registers <= 256;

// Waits until the pool holds enough. What the new registers hold is undefined.
template <int registers>
__device__ __forceinline__ void setmaxnreg_inc()
{
    static_assert(setmaxnreg_count<registers>, "registers: multiples of 8 from 24 to 256");
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

// The registers from this number up go back to the pool.
template <int registers>
__device__ __forceinline__ void setmaxnreg_dec()
{
    static_assert(setmaxnreg_count<registers>, "registers: multiples of 8 from 24 to 256");
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

}  // namespace ptxlab
