// clusterlaunchcontrol: a running block asks for the work of a cluster that has not started yet, whose launch
// is then cancelled. Source: PTX ISA, "Parallel synchronization and communication instructions:
// clusterlaunchcontrol.try_cancel" and ".query_cancel". From sm_100 on.
#pragma once

namespace ptxlab {

// Asks. The answer, 16 opaque bytes, arrives at `response` (a multiple of 16 in the shared window) and counts
// as 16 bytes at the mbarrier; with `everywhere` at the same places in every block of the cluster, of which one
// asks. Once an answer was no, nobody of the block may ask again.
template <bool everywhere>
__device__ __forceinline__ void try_cancel(unsigned response, unsigned barrier)
{
    if constexpr (everywhere)
        asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
                     ".multicast::cluster::all.b128 [%0], [%1];" ::"r"(response), "r"(barrier)
                     : "memory");
    else
        asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
                     ".b128 [%0], [%1];" ::"r"(response), "r"(barrier)
                     : "memory");
}

// Returns whether a launch was cancelled, and the number of the first block of that cluster.
__device__ __forceinline__ bool query_cancel(unsigned response, unsigned &x, unsigned &y, unsigned &z)
{
    unsigned cancelled;
    asm volatile("{\n.reg .pred p;\n.reg .b128 h;\nld.shared.b128 h, [%4];\n"
                 "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, h;\nselp.u32 %3, 1, 0, p;\n"
                 "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\n"
                 "@p clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%0, %1, %2, _}, h;\n}"
                 : "=&r"(x), "=&r"(y), "=&r"(z), "=&r"(cancelled)
                 : "r"(response)
                 : "memory");
    return cancelled;
}

}  // namespace ptxlab
