// elect.sync: of the lanes in a mask, which all execute it, one becomes the leader.
// Source: PTX ISA, "Parallel synchronization and communication instructions: elect.sync". From sm_90 on.
#pragma once

namespace ptxlab {

// Returns whether this lane is the leader; `leader` is the leader's number, in every lane of the mask.
__device__ __forceinline__ bool elect(unsigned mask, unsigned &leader)
{
    unsigned elected;
    asm volatile("{\n.reg .pred p;\nelect.sync %0|p, %2;\nselp.u32 %1, 1, 0, p;\n}"
                 : "=r"(leader), "=r"(elected)
                 : "r"(mask));
    return elected;
}

}  // namespace ptxlab
