// One matrix multiplication a block, from registers to registers. mma.sync: one warp. wgmma: a warpgroup whose
// four warps all hold the same 16 rows of A; B, 8 columns of 32 bytes, goes through shared memory as two core
// matrices of 8 x 16 bytes, and warp (tile % 4) writes its part of D.
//
// Macros: KERNEL, PTX (the instruction up to its operands, a string), WGMMA (0 or 1), RA, RB, RC (registers of
// A, B and C in each lane), TAIL (what follows the operands of wgmma, a string).

extern "C" __global__ void KERNEL(const unsigned *a,    // [tiles][32][RA]
                                  const unsigned *b,    // [tiles][32][RB]; wgmma: [tiles][2][8][4] words
                                  const unsigned *c,    // [tiles][32][RC]
                                  unsigned *d)          // [tiles][32][RC]
{
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, tile = blockIdx.x;
    unsigned x[RA], z[RC];
    for (unsigned r = 0; r < RA; ++r)
        x[r] = a[(tile * 32 + lane) * RA + r];
    for (unsigned r = 0; r < RC; ++r)
        z[r] = c[(tile * 32 + lane) * RC + r];

#if WGMMA
    __shared__ __align__(128) unsigned shared[64];
    if (threadIdx.x < 64)
        shared[threadIdx.x] = b[tile * 64 + threadIdx.x];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    // Both strides are 128 bytes: of the two core matrices only one stride counts, whichever it is.
    const unsigned long long base = __cvta_generic_to_shared(shared);
    const unsigned long long descriptor = (base >> 4 & 0x3fff) | 8ull << 16 | 8ull << 32;
#define GROUP(results, factors, tail) \
    "{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\nwgmma.fence.sync.aligned;\n" PTX " " results ", " factors \
    ", p, " tail ";\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n}"
#if RC == 4
    asm volatile(GROUP("{%0, %1, %2, %3}", "{%4, %5, %6, %7}, %8", TAIL)
                 : "+r"(z[0]), "+r"(z[1]), "+r"(z[2]), "+r"(z[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(descriptor) : "memory");
#else
    asm volatile(GROUP("{%0, %1}", "{%2, %3, %4, %5}, %6", TAIL)
                 : "+r"(z[0]), "+r"(z[1])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(descriptor) : "memory");
#endif
#undef GROUP
#else
    unsigned y[RB];
    for (unsigned r = 0; r < RB; ++r)
        y[r] = b[(tile * 32 + lane) * RB + r];
#if RC == 4 && RA == 4
    asm volatile(PTX " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(z[0]), "+r"(z[1]), "+r"(z[2]), "+r"(z[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
#elif RC == 4
    asm volatile(PTX " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+r"(z[0]), "+r"(z[1]), "+r"(z[2]), "+r"(z[3])
                 : "r"(x[0]), "r"(x[1]), "r"(y[0]));
#elif RA == 4
    asm volatile(PTX " {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
                 : "+r"(z[0]), "+r"(z[1])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
#else
    asm volatile(PTX " {%0, %1}, {%2, %3}, {%4}, {%0, %1};"
                 : "+r"(z[0]), "+r"(z[1])
                 : "r"(x[0]), "r"(x[1]), "r"(y[0]));
#endif
#endif

    if (warp == (WGMMA ? tile % 4 : 0))
        for (unsigned r = 0; r < RC; ++r)
            d[(tile * 32 + lane) * RC + r] = z[r];
}
