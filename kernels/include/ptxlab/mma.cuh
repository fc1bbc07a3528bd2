// mma.sync and mma.sp: one warp multiplies a fragment of A by a fragment of B and adds a fragment of C.
// Source: PTX ISA, "Matrix multiply-accumulate operation using mma instruction" and "... using mma.sp".
//
// The instruction's text must be a literal, so this is a macro. Its operands have fixed numbers, whatever
// the form: %0-%7 are C and D, %8-%15 A, %16-%19 B, %20 the metadata. A form names those that it has; the
// rest are there for the numbering and cost nothing.
#pragma once

#define PTXLAB_MMA_D_2 "{%0, %1}"
#define PTXLAB_MMA_D_4 "{%0, %1, %2, %3}"
#define PTXLAB_MMA_D_8 "{%0, %1, %2, %3, %4, %5, %6, %7}"
#define PTXLAB_MMA_A_1 "{%8}"
#define PTXLAB_MMA_A_2 "{%8, %9}"
#define PTXLAB_MMA_A_4 "{%8, %9, %10, %11}"
#define PTXLAB_MMA_A_8 "{%8, %9, %10, %11, %12, %13, %14, %15}"
#define PTXLAB_MMA_B_1 "{%16}"
#define PTXLAB_MMA_B_2 "{%16, %17}"
#define PTXLAB_MMA_B_4 "{%16, %17, %18, %19}"

// Constraint letters: of an accumulator that is read and written, and of a register that is read.
#define PTXLAB_MMA_IN_unsigned "r"
#define PTXLAB_MMA_IN_double "d"
#define PTXLAB_MMA_INOUT_unsigned "+r"
#define PTXLAB_MMA_INOUT_float "+f"
#define PTXLAB_MMA_INOUT_double "+d"

#define PTXLAB_JOIN(a, b) a##b
#define PTXLAB_PASTE(a, b) PTXLAB_JOIN(a, b)

#define PTXLAB_MMA_LISTS(nd, na, nb)                                                                       \
    " " PTXLAB_PASTE(PTXLAB_MMA_D_, nd) ", " PTXLAB_PASTE(PTXLAB_MMA_A_, na) ", "                          \
        PTXLAB_PASTE(PTXLAB_MMA_B_, nb) ", " PTXLAB_PASTE(PTXLAB_MMA_D_, nd)

#define PTXLAB_MMA_ASM(text, acc, word, d, a, b, e)                                                        \
    asm volatile(text                                                                                      \
                 : PTXLAB_PASTE(PTXLAB_MMA_INOUT_, acc)(d[0]), PTXLAB_PASTE(PTXLAB_MMA_INOUT_, acc)(d[1]), \
                   PTXLAB_PASTE(PTXLAB_MMA_INOUT_, acc)(d[2]), PTXLAB_PASTE(PTXLAB_MMA_INOUT_, acc)(d[3]), \
                   PTXLAB_PASTE(PTXLAB_MMA_INOUT_, acc)(d[4]), PTXLAB_PASTE(PTXLAB_MMA_INOUT_, acc)(d[5]), \
                   PTXLAB_PASTE(PTXLAB_MMA_INOUT_, acc)(d[6]), PTXLAB_PASTE(PTXLAB_MMA_INOUT_, acc)(d[7])  \
                 : PTXLAB_PASTE(PTXLAB_MMA_IN_, word)(a[0]), PTXLAB_PASTE(PTXLAB_MMA_IN_, word)(a[1]),     \
                   PTXLAB_PASTE(PTXLAB_MMA_IN_, word)(a[2]), PTXLAB_PASTE(PTXLAB_MMA_IN_, word)(a[3]),     \
                   PTXLAB_PASTE(PTXLAB_MMA_IN_, word)(a[4]), PTXLAB_PASTE(PTXLAB_MMA_IN_, word)(a[5]),     \
                   PTXLAB_PASTE(PTXLAB_MMA_IN_, word)(a[6]), PTXLAB_PASTE(PTXLAB_MMA_IN_, word)(a[7]),     \
                   PTXLAB_PASTE(PTXLAB_MMA_IN_, word)(b[0]), PTXLAB_PASTE(PTXLAB_MMA_IN_, word)(b[1]),     \
                   PTXLAB_PASTE(PTXLAB_MMA_IN_, word)(b[2]), PTXLAB_PASTE(PTXLAB_MMA_IN_, word)(b[3]),     \
                   "r"(e))

// d (8 of type acc: unsigned, float or double) holds C before and D after; a has 8 and b has 4 of type word
// (unsigned or double); nd, na and nb say how many of them the form has.
#define PTXLAB_MMA(ptx, nd, na, nb, acc, word, d, a, b)                                                    \
    PTXLAB_MMA_ASM(ptx PTXLAB_MMA_LISTS(nd, na, nb) ";", acc, word, d, a, b, 0u)

// The same with a sparse A: metadata is one register of each lane, selector a literal such as "0".
#define PTXLAB_MMA_SP(ptx, nd, na, nb, acc, word, d, a, b, metadata, selector)                             \
    PTXLAB_MMA_ASM(ptx PTXLAB_MMA_LISTS(nd, na, nb) ", %20, " selector ";", acc, word, d, a, b, metadata)
