// In which order tiles of C are computed. Those that run at the same time should need few rows of A and few
// columns of B together, so that these come from the L2.
#pragma once

namespace ptxlab {

struct TileAt {
    int row, col;  // among the tiles
};

// Groups of GROUP tile rows, each walked column by column; the last group may be lower.
template <int GROUP>
__device__ __forceinline__ TileAt grouped(int index, int down, int across)
{
    const int first = index / (GROUP * across) * GROUP, within = index % (GROUP * across);
    const int height = min(GROUP, down - first);
    return {first + within % height, within / height};
}

// The same, every other group from right to left: the columns at the turn are still in the L2.
template <int GROUP>
__device__ __forceinline__ TileAt serpentine(int index, int down, int across)
{
    const TileAt at = grouped<GROUP>(index, down, across);
    return {at.row, at.row / GROUP % 2 ? across - 1 - at.col : at.col};
}

}  // namespace ptxlab
