// griddepcontrol: a kernel lets the next one in its stream start early, and the next one waits for it.
// Source: PTX ISA, "Parallel synchronization and communication instructions: griddepcontrol". From sm_90 on.
#pragma once

namespace ptxlab {

// The next kernel, if it was launched to be dependent on this one, may start once every block of this one has
// called this or has ended. Nothing is said of what was written before.
__device__ __forceinline__ void launch_dependents()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Waits until the kernel ahead has ended altogether: what it wrote is seen from here on.
__device__ __forceinline__ void grid_dependency_wait()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace ptxlab
