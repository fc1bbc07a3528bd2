// Clusters: blocks that run at the same time, wait for each other, and reach into each other's shared memory
// (distributed shared memory, DSMEM). From sm_90 on.
// Source: PTX ISA, "Special registers: %cluster_ctarank", "barrier.cluster", "mapa", "getctarank", "st.async",
// "red.async", "cp.async.bulk", "cp.async.bulk.tensor".
//
// An address in the window of the cluster has 32 bits. An address of the block's own shared memory is one, too: it
// names the block that made it.
#pragma once

#include <ptxlab/tma.cuh>

namespace ptxlab {

enum class ClusterBarrier { release, relaxed, aligned };

struct Place {
    unsigned x, y, z;
};

#define PTXLAB_PLACE(function, name) \
    __device__ __forceinline__ Place function() \
    { \
        Place at; \
        asm volatile("mov.u32 %0, %%" name ".x;\nmov.u32 %1, %%" name ".y;\nmov.u32 %2, %%" name ".z;" \
                     : "=r"(at.x), "=r"(at.y), "=r"(at.z)); \
        return at; \
    }
PTXLAB_PLACE(cluster_id, "clusterid")              // which cluster of the grid
PTXLAB_PLACE(clusters_of_grid, "nclusterid")       // how many there are
PTXLAB_PLACE(block_in_cluster, "cluster_ctaid")    // which block of the cluster
PTXLAB_PLACE(blocks_of_cluster, "cluster_nctaid")
#undef PTXLAB_PLACE

__device__ __forceinline__ unsigned cluster_rank()
{
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ unsigned cluster_size()
{
    unsigned size;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    return size;
}

// Every thread of the cluster arrives, and waits for all others that have not ended. With release, and aligned,
// what a thread wrote before is seen by all after the wait; relaxed orders nothing by itself, so that a fence must
// come before. Aligned: all threads of the warp come to this place together.
template <ClusterBarrier form>
__device__ __forceinline__ void cluster_arrive()
{
    if constexpr (form == ClusterBarrier::release) asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    if constexpr (form == ClusterBarrier::relaxed) asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
    if constexpr (form == ClusterBarrier::aligned)
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

template <ClusterBarrier form>
__device__ __forceinline__ void cluster_wait()
{
    if constexpr (form == ClusterBarrier::aligned)
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    else
        asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

__device__ __forceinline__ void cluster_fence() { asm volatile("fence.acq_rel.cluster;" ::: "memory"); }

// The address of what lies at `address`, of any block's shared memory, in that of block `rank`.
__device__ __forceinline__ unsigned map_to_block(unsigned address, unsigned rank)
{
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

__device__ __forceinline__ unsigned long long map_to_block(const void *generic, unsigned rank)
{
    unsigned long long there;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(generic), "r"(rank));
    return there;
}

__device__ __forceinline__ unsigned rank_of_address(unsigned address)
{
    unsigned rank;
    asm volatile("getctarank.shared::cluster.u32 %0, %1;" : "=r"(rank) : "r"(address));
    return rank;
}

// `words` is 1, 2 or 4; `there` is a multiple of their bytes.
template <int words>
__device__ __forceinline__ void cluster_load(unsigned (&value)[words], unsigned there)
{
    static_assert(words == 1 || words == 2 || words == 4, "ld has no vector of this length");
    if constexpr (words == 1)
        asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value[0]) : "r"(there) : "memory");
    if constexpr (words == 2)
        asm volatile("ld.shared::cluster.v2.u32 {%0, %1}, [%2];"
                     : "=r"(value[0]), "=r"(value[1])
                     : "r"(there)
                     : "memory");
    if constexpr (words == 4)
        asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(value[0]), "=r"(value[1]), "=r"(value[2]), "=r"(value[3])
                     : "r"(there)
                     : "memory");
}

template <int words>
__device__ __forceinline__ void cluster_store(unsigned there, const unsigned (&value)[words])
{
    static_assert(words == 1 || words == 2 || words == 4, "st has no vector of this length");
    if constexpr (words == 1)
        asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(there), "r"(value[0]) : "memory");
    if constexpr (words == 2)
        asm volatile("st.shared::cluster.v2.u32 [%0], {%1, %2};" ::"r"(there), "r"(value[0]), "r"(value[1])
                     : "memory");
    if constexpr (words == 4)
        asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(there), "r"(value[0]),
                     "r"(value[1]), "r"(value[2]), "r"(value[3])
                     : "memory");
}

// The store is asynchronous: its bytes count at an mbarrier of the block that gets them.
template <int words>
__device__ __forceinline__ void cluster_store_async(unsigned there, const unsigned (&value)[words],
                                                    unsigned barrier_there)
{
    static_assert(words == 1 || words == 2 || words == 4, "st.async has no vector of this length");
    if constexpr (words == 1)
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
                     ::"r"(there), "r"(value[0]), "r"(barrier_there)
                     : "memory");
    if constexpr (words == 2)
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];"
                     ::"r"(there), "r"(value[0]), "r"(value[1]), "r"(barrier_there)
                     : "memory");
    if constexpr (words == 4)
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];"
                     ::"r"(there), "r"(value[0]), "r"(value[1]), "r"(value[2]), "r"(value[3]), "r"(barrier_there)
                     : "memory");
}

#define PTXLAB_CLUSTER_REDUCTIONS(CALL) \
    CALL(add, "add.u32") CALL(min, "min.u32") CALL(max, "max.u32") CALL(inc, "inc.u32") CALL(dec, "dec.u32") \
    CALL(and_, "and.b32") CALL(or_, "or.b32") CALL(xor_, "xor.b32")

// Returns what was there before.
template <Reduce operation>
__device__ __forceinline__ unsigned cluster_atom(unsigned there, unsigned operand)
{
    unsigned old;
#define PTXLAB_ATOM(name, text) \
    if constexpr (operation == Reduce::name) \
        asm volatile("atom.relaxed.cluster.shared::cluster." text " %0, [%1], %2;" \
                     : "=r"(old) \
                     : "r"(there), "r"(operand) \
                     : "memory");
    PTXLAB_CLUSTER_REDUCTIONS(PTXLAB_ATOM)
#undef PTXLAB_ATOM
    return old;
}

template <Reduce operation>
__device__ __forceinline__ void cluster_red(unsigned there, unsigned operand)
{
#define PTXLAB_RED(name, text) \
    if constexpr (operation == Reduce::name) \
        asm volatile("red.relaxed.cluster.shared::cluster." text " [%0], %1;" ::"r"(there), "r"(operand) : "memory");
    PTXLAB_CLUSTER_REDUCTIONS(PTXLAB_RED)
#undef PTXLAB_RED
}

template <Reduce operation>
__device__ __forceinline__ void cluster_red_async(unsigned there, unsigned operand, unsigned barrier_there)
{
#define PTXLAB_RED(name, text) \
    if constexpr (operation == Reduce::name) \
        asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes." text \
                     " [%0], %1, [%2];" ::"r"(there), "r"(operand), "r"(barrier_there) \
                     : "memory");
    PTXLAB_CLUSTER_REDUCTIONS(PTXLAB_RED)
#undef PTXLAB_RED
}
#undef PTXLAB_CLUSTER_REDUCTIONS

// One read of global memory lands in every block whose bit is set in `blocks`, at the offset that `shared` has in
// the own block, and counts all its bytes at the mbarrier that each of them has at the offset of `barrier`.
__device__ __forceinline__ void bulk_multicast(unsigned shared, const void *global, unsigned bytes,
                                               unsigned barrier, unsigned short blocks)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(shared), "l"(global), "r"(bytes), "r"(barrier), "h"(blocks)
                 : "memory");
}

// The same with a box of a tensor of two dimensions (see tma.cuh).
__device__ __forceinline__ void tma_multicast(unsigned shared, const TensorMap &map, int column, int row,
                                              unsigned barrier, unsigned short blocks)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
                 ::"r"(shared), "l"(&map), "r"(column), "r"(row), "r"(barrier), "h"(blocks)
                 : "memory");
}

}  // namespace ptxlab
