// Every block is one experiment: one warp loads the registers of A, B, C (and of a sparse A's metadata),
// executes one mma, and stores D.
//
// Macros: KERNEL, PTX (the instruction's text up to its operands), D_REGISTERS, A_REGISTERS, B_REGISTERS (of
// each lane), ACC (unsigned, float or double: the type of a register of C and D), WORD (unsigned or double: of
// A and B), SPARSE (0 or 1), SELECTOR (a string: which lanes supply metadata).

#include <ptxlab/mma.cuh>

extern "C" __global__ void KERNEL(const WORD *a,           // [experiments][32][A_REGISTERS]
                                  const WORD *b,           // [experiments][32][B_REGISTERS]
                                  const ACC *c,            // [experiments][32][D_REGISTERS]
                                  const unsigned *e,       // [experiments][32]; not read unless SPARSE
                                  ACC *d)                  // [experiments][32][D_REGISTERS]
{
    const unsigned thread = blockIdx.x * 32 + threadIdx.x;
    WORD a_words[8] = {}, b_words[4] = {};
    ACC accumulators[8] = {};
    for (unsigned r = 0; r < A_REGISTERS; ++r)
        a_words[r] = a[thread * A_REGISTERS + r];
    for (unsigned r = 0; r < B_REGISTERS; ++r)
        b_words[r] = b[thread * B_REGISTERS + r];
    for (unsigned r = 0; r < D_REGISTERS; ++r)
        accumulators[r] = c[thread * D_REGISTERS + r];

#if SPARSE
    PTXLAB_MMA_SP(PTX, D_REGISTERS, A_REGISTERS, B_REGISTERS, ACC, WORD, accumulators, a_words, b_words,
                  e[thread], SELECTOR);
#else
    PTXLAB_MMA(PTX, D_REGISTERS, A_REGISTERS, B_REGISTERS, ACC, WORD, accumulators, a_words, b_words);
#endif

    for (unsigned r = 0; r < D_REGISTERS; ++r)
        d[thread * D_REGISTERS + r] = accumulators[r];
}
