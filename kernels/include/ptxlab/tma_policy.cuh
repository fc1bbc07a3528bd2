// How long what TMA brings or writes is to stay in the L2: policies, and copies of a tensor of two dimensions
// that carry one (see tma.cuh, cluster.cuh). Of lines that compete for a place in the L2, those of "first" go
// before those of "normal", and those of "last" after them. It is a hint: no result depends on it.
// Source: PTX ISA, "createpolicy", and the operand .L2::cache_hint of "cp.async.bulk.tensor".
#pragma once

#include <ptxlab/cluster.cuh>

namespace ptxlab {

enum class Evict { normal, first, last };

// Made anew for each copy, from a constant: to keep it takes two registers, which a producer may not have.
template <Evict EVICT>
struct CachePolicy {
    unsigned long long word;

    __device__ __forceinline__ CachePolicy()
    {
        if constexpr (EVICT == Evict::first)
            asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(word));
        else
            asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(word));
    }
};

template <>
struct CachePolicy<Evict::normal> {
};

using NoPolicy = CachePolicy<Evict::normal>;

template <Evict EVICT>
__device__ __forceinline__ void tma_load(unsigned shared, const TensorMap& map, int column, int row,
                                         unsigned barrier, const CachePolicy<EVICT>& policy)
{
    if constexpr (EVICT == Evict::normal)
        tma_load<2>(shared, map, {column, row, 0, 0, 0}, barrier);
    else
        asm volatile("cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
                     ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;"
                     ::"r"(shared), "l"(&map), "r"(column), "r"(row), "r"(barrier), "l"(policy.word)
                     : "memory");
}

template <Evict EVICT>
__device__ __forceinline__ void tma_multicast(unsigned shared, const TensorMap& map, int column, int row,
                                              unsigned barrier, unsigned short blocks,
                                              const CachePolicy<EVICT>& policy)
{
    if constexpr (EVICT == Evict::normal)
        tma_multicast(shared, map, column, row, barrier, blocks);
    else
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                     ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5, %6;"
                     ::"r"(shared), "l"(&map), "r"(column), "r"(row), "r"(barrier), "h"(blocks),
                     "l"(policy.word)
                     : "memory");
}

template <Evict EVICT>
__device__ __forceinline__ void tma_store(const TensorMap& map, int column, int row, unsigned shared,
                                          const CachePolicy<EVICT>& policy)
{
    if constexpr (EVICT == Evict::normal)
        tma_store<2>(map, {column, row, 0, 0, 0}, shared);
    else
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint "
                     "[%0, {%1, %2}], [%3], %4;"
                     ::"l"(&map), "r"(column), "r"(row), "r"(shared), "l"(policy.word)
                     : "memory");
}

}  // namespace ptxlab
