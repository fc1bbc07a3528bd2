// Which tiles of C, or which parts of them, a block that stays on its SM computes one after the other.
#pragma once

#include <ptxlab/gemm_cluster.cuh>
#include <ptxlab/gemm_order.cuh>

namespace ptxlab {

// What a block does next: a tile, or of one that is split the steps from `begin` to `end` along k.
struct Work {
    int row, col, begin, end;
    int tile, part, parts;  // of a tile that is split: its number, which part this is, and how many there are
};

// How the work is dealt out. Whole: tile after tile. Split: SPLITS parts of each tile, all alike, the first
// parts of all tiles before the second ones: blocks that run at the same time then have the same k, and ask
// the L2 for the same lines, which seems to cost it less than others. Stream-K: whole tiles as long as there
// is one for every block, and the steps of those that are left in even shares, so that all end at the same
// time; a share may be the end of one tile and the start of the next.
enum class Deal { whole, split, stream };

// The work of this block, piece by piece: the blocks of a cluster have tiles that lie beside each other, or
// parts of the same tiles.
template <typename Cluster, Deal DEAL, int SPLITS, int BM, int BN, int BK, int GROUP>
struct Schedule {
    static constexpr int HIGH = BM * Cluster::DOWN, WIDE = BN * Cluster::ACROSS;  // what a cluster covers
    Cluster place;
    int down, across;  // clusters' worth of tiles
    int steps;
    int index, stride;  // of clusters
    int whole, rest;    // tiles that are dealt out whole, and those that are left
    long long at, until;  // this cluster's share of the steps of the rest

    __device__ __forceinline__ Schedule(int m, int n, int k)
        : down((m - 1) / HIGH + 1), across((n - 1) / WIDE + 1), steps((k - 1) / BK + 1),
          index(blockIdx.x / Cluster::BLOCKS), stride(gridDim.x / Cluster::BLOCKS), whole(down * across),
          rest(0), at(0), until(0)
    {
        if constexpr (DEAL == Deal::stream) {
            rest = whole % stride;
            whole -= rest;
            at = share(index);
            until = share(index + 1);
        }
    }

    __device__ __forceinline__ bool next(Work& work)
    {
        if constexpr (DEAL == Deal::split) {
            if (index >= whole * SPLITS) return false;
            set(work, index % whole, index / whole, SPLITS);
        } else if (index < whole) {
            set(work, index, place.part, Cluster::PARTS);
        } else if (DEAL == Deal::stream && at < until) {
            set_share(work);
            return true;
        } else {
            return false;
        }
        index += stride;
        return true;
    }

    // Passes over the piece that another consumer has, and returns its steps: 0 where there is none.
    __device__ __forceinline__ int skip()
    {
        Work other;
        return next(other) ? other.end - other.begin : 0;
    }

    // The most parts that a tile can have.
    __device__ __forceinline__ int most_parts() const
    {
        return DEAL == Deal::stream ? (stride - 1) / max(1, rest) + 2 : SPLITS;
    }

private:
    __device__ __forceinline__ void set(Work& work, int cluster, int part, int parts) const
    {
        set_place(work, cluster);
        work.begin = parts == 1 ? 0 : steps * part / parts;
        work.end = parts == 1 ? steps : steps * (part + 1) / parts;
        work.tile = cluster * Cluster::TILES + place.tile();
        work.part = part;
        work.parts = parts;
    }

    __device__ __forceinline__ void set_place(Work& work, int cluster) const
    {
        const TileAt tile = serpentine<GROUP>(cluster, down, across);
        work.row = tile.row * HIGH + place.row * BM;
        work.col = tile.col * WIDE + place.col * BN;
    }

    // What is left of a tile, or of the share, whichever is less.
    __device__ __forceinline__ void set_share(Work& work)
    {
        const int tile = static_cast<int>(at / steps);
        const long long first = static_cast<long long>(tile) * steps;
        set_place(work, whole + tile);
        work.begin = static_cast<int>(at - first);
        work.end = static_cast<int>(min(until - first, static_cast<long long>(steps)));
        work.tile = tile * Cluster::TILES + place.tile();
        work.part = static_cast<int>(blockIdx.x / Cluster::BLOCKS) - owner(first);
        work.parts = owner(first + steps - 1) - owner(first) + 1;
        at = first + work.end;
    }

    // Where the share of a cluster begins, and whose share a step is in. No share is empty: the stage takes
    // no problem with fewer steps than clusters here.
    __device__ __forceinline__ long long share(int cluster) const
    {
        return static_cast<long long>(rest) * steps * cluster / stride;
    }
    __device__ __forceinline__ int owner(long long step) const
    {
        return static_cast<int>(((step + 1) * stride - 1) / (static_cast<long long>(rest) * steps));
    }
};

}  // namespace ptxlab
