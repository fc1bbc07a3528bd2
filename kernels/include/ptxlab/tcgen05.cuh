// tcgen05: tensor memory, and the matrix instructions that accumulate in it.
// Source: PTX ISA, "TensorCore 5th generation family instructions". On sm_100, sm_103, sm_107 and sm_110 with
// the a or f suffix; modelled and compiled here, not run on a chip that has it.
//
// A tensor-memory address has the lane in its upper 16 bits and the column in its lower 16. All tcgen05
// instructions of a kernel have one cta_group.
#pragma once

namespace ptxlab {

enum class Tmem { s32x32b, s16x64b, s16x128b, s16x256b, s16x32bx2 };
enum class Tcgen05Copy { s128x256b, s4x256b, s128x128b, s64x128b_02_13, s64x128b_01_23, s32x128b };
enum class Tcgen05Kind { f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4_block32, mxf4nvf4_block16 };

// One whole warp takes `columns` columns of all lanes; their address arrives at `slot` (in the shared window).
// It waits until there are so many. With cta_group 2 a warp of each block of the pair does it.
template <int columns, int cta_group>
__device__ __forceinline__ void tcgen05_alloc(unsigned slot)
{
    static_assert(columns >= 32 && columns <= 512 && (columns & (columns - 1)) == 0, "a power of 2 from 32 on");
    asm volatile("tcgen05.alloc.cta_group::%2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(slot),
                 "n"(columns), "n"(cta_group)
                 : "memory");
}

// Whatever was allocated must be given back before the kernel ends.
template <int columns, int cta_group>
__device__ __forceinline__ void tcgen05_dealloc(unsigned address)
{
    asm volatile("tcgen05.dealloc.cta_group::%2.sync.aligned.b32 %0, %1;" ::"r"(address), "n"(columns),
                 "n"(cta_group)
                 : "memory");
}

// The block allocates no more: others may.
template <int cta_group>
__device__ __forceinline__ void tcgen05_relinquish()
{
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::%0.sync.aligned;" ::"n"(cta_group) : "memory");
}

// Around a barrier: what was issued before it is done before what is issued after it, by other threads.
__device__ __forceinline__ void tcgen05_fence_before()
{
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}
__device__ __forceinline__ void tcgen05_fence_after()
{
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

namespace tcgen05_text {

template <Tmem shape>
struct Shape;
template <Tcgen05Copy shape>
struct Copy;
template <Tcgen05Kind kind>
struct Kind;
#define PTXLAB_NAMED(what, type, name, words) \
    template <> \
    struct what<type::name> { \
        static constexpr char text[] = words; \
    };
PTXLAB_NAMED(Shape, Tmem, s32x32b, "32x32b")
PTXLAB_NAMED(Shape, Tmem, s16x64b, "16x64b")
PTXLAB_NAMED(Shape, Tmem, s16x128b, "16x128b")
PTXLAB_NAMED(Shape, Tmem, s16x256b, "16x256b")
PTXLAB_NAMED(Shape, Tmem, s16x32bx2, "16x32bx2")
PTXLAB_NAMED(Copy, Tcgen05Copy, s128x256b, "128x256b")
PTXLAB_NAMED(Copy, Tcgen05Copy, s4x256b, "4x256b")
PTXLAB_NAMED(Copy, Tcgen05Copy, s128x128b, "128x128b")
PTXLAB_NAMED(Copy, Tcgen05Copy, s64x128b_02_13, "64x128b.warpx2::02_13")
PTXLAB_NAMED(Copy, Tcgen05Copy, s64x128b_01_23, "64x128b.warpx2::01_23")
PTXLAB_NAMED(Copy, Tcgen05Copy, s32x128b, "32x128b.warpx4")
PTXLAB_NAMED(Kind, Tcgen05Kind, f16, "f16")
PTXLAB_NAMED(Kind, Tcgen05Kind, tf32, "tf32")
PTXLAB_NAMED(Kind, Tcgen05Kind, f8f6f4, "f8f6f4")
PTXLAB_NAMED(Kind, Tcgen05Kind, i8, "i8")
PTXLAB_NAMED(Kind, Tcgen05Kind, mxf8f6f4, "mxf8f6f4.block_scale.block32")
PTXLAB_NAMED(Kind, Tcgen05Kind, mxf4, "mxf4.block_scale.block32")
PTXLAB_NAMED(Kind, Tcgen05Kind, mxf4nvf4_block32, "mxf4nvf4.block_scale.block32")
PTXLAB_NAMED(Kind, Tcgen05Kind, mxf4nvf4_block16, "mxf4nvf4.block_scale.block16")
#undef PTXLAB_NAMED

// Two halves of a register go to two columns, and back.
template <bool packed, bool load>
struct Pack {
    static constexpr char text[] = "";
};
template <>
struct Pack<true, true> {
    static constexpr char text[] = ".pack::16b";
};
template <>
struct Pack<true, false> {
    static constexpr char text[] = ".unpack::16b";
};

template <bool weights_stationary>
struct Stationary {
    static constexpr char text[] = "";
};
template <>
struct Stationary<true> {
    static constexpr char text[] = ".ws";
};

template <Tmem shape>
constexpr int registers_of_one = shape == Tmem::s16x128b ? 2 : shape == Tmem::s16x256b ? 4 : 1;

// The instructions with so many registers.
template <int registers>
struct Asm;

// F(1) F(2) ... up to one less than the number in the name.
#define PTXLAB_TMEM_1(F)
#define PTXLAB_TMEM_2(F) F(1)
#define PTXLAB_TMEM_4(F) PTXLAB_TMEM_2(F) F(2) F(3)
#define PTXLAB_TMEM_8(F) PTXLAB_TMEM_4(F) F(4) F(5) F(6) F(7)
#define PTXLAB_TMEM_16(F) PTXLAB_TMEM_8(F) F(8) F(9) F(10) F(11) F(12) F(13) F(14) F(15)
#define PTXLAB_TMEM_32(F) PTXLAB_TMEM_16(F) F(16) F(17) F(18) F(19) F(20) F(21) F(22) F(23) F(24) F(25) \
    F(26) F(27) F(28) F(29) F(30) F(31)
#define PTXLAB_TMEM_64(F) PTXLAB_TMEM_32(F) F(32) F(33) F(34) F(35) F(36) F(37) F(38) F(39) F(40) F(41) \
    F(42) F(43) F(44) F(45) F(46) F(47) F(48) F(49) F(50) F(51) F(52) F(53) F(54) F(55) F(56) F(57) F(58) \
    F(59) F(60) F(61) F(62) F(63)
#define PTXLAB_TMEM_128(F) PTXLAB_TMEM_64(F) F(64) F(65) F(66) F(67) F(68) F(69) F(70) F(71) F(72) F(73) \
    F(74) F(75) F(76) F(77) F(78) F(79) F(80) F(81) F(82) F(83) F(84) F(85) F(86) F(87) F(88) F(89) F(90) \
    F(91) F(92) F(93) F(94) F(95) F(96) F(97) F(98) F(99) F(100) F(101) F(102) F(103) F(104) F(105) F(106) \
    F(107) F(108) F(109) F(110) F(111) F(112) F(113) F(114) F(115) F(116) F(117) F(118) F(119) F(120) \
    F(121) F(122) F(123) F(124) F(125) F(126) F(127)

#define PTXLAB_TEXT(i) ", %" #i
#define PTXLAB_OUTPUT(i) , "=r"(r[i])
#define PTXLAB_INPUT(i) , "r"(r[i])

// n registers are the asm's operands %0 to %n-1; p0 to p4 are the numbers that follow.
#define PTXLAB_TMEM(n, p0, p1, p2, p3, p4) \
    template <> \
    struct Asm<n> { \
        template <typename Shape, int num, typename Pack> \
        __device__ __forceinline__ static void ld(unsigned (&r)[n], unsigned address) \
        { \
            asm volatile("tcgen05.ld.sync.aligned.%" #p1 ".x%" #p2 "%" #p3 ".b32 {%0" \
                         PTXLAB_TMEM_##n(PTXLAB_TEXT) "}, [%" #p0 "];" \
                         : "=r"(r[0]) PTXLAB_TMEM_##n(PTXLAB_OUTPUT) \
                         : "r"(address), "C"(Shape::text), "n"(num), "C"(Pack::text) \
                         : "memory"); \
        } \
        template <typename Shape, int num, typename Pack, int split> \
        __device__ __forceinline__ static void ld_split(unsigned (&r)[n], unsigned address) \
        { \
            asm volatile("tcgen05.ld.sync.aligned.%" #p1 ".x%" #p2 "%" #p3 ".b32 {%0" \
                         PTXLAB_TMEM_##n(PTXLAB_TEXT) "}, [%" #p0 "], %" #p4 ";" \
                         : "=r"(r[0]) PTXLAB_TMEM_##n(PTXLAB_OUTPUT) \
                         : "r"(address), "C"(Shape::text), "n"(num), "C"(Pack::text), "n"(split) \
                         : "memory"); \
        } \
        template <typename Shape, int num, typename Pack> \
        __device__ __forceinline__ static void st(const unsigned (&r)[n], unsigned address) \
        { \
            asm volatile("tcgen05.st.sync.aligned.%" #p1 ".x%" #p2 "%" #p3 ".b32 [%" #p0 "], {%0" \
                         PTXLAB_TMEM_##n(PTXLAB_TEXT) "};" ::"r"(r[0]) PTXLAB_TMEM_##n(PTXLAB_INPUT), \
                         "r"(address), "C"(Shape::text), "n"(num), "C"(Pack::text) \
                         : "memory"); \
        } \
        template <typename Shape, int num, typename Pack, int split> \
        __device__ __forceinline__ static void st_split(const unsigned (&r)[n], unsigned address) \
        { \
            asm volatile("tcgen05.st.sync.aligned.%" #p1 ".x%" #p2 "%" #p3 ".b32 [%" #p0 "], %" #p4 ", {%0" \
                         PTXLAB_TMEM_##n(PTXLAB_TEXT) "};" ::"r"(r[0]) PTXLAB_TMEM_##n(PTXLAB_INPUT), \
                         "r"(address), "C"(Shape::text), "n"(num), "C"(Pack::text), "n"(split) \
                         : "memory"); \
        } \
    };
PTXLAB_TMEM(1, 1, 2, 3, 4, 5)
PTXLAB_TMEM(2, 2, 3, 4, 5, 6)
PTXLAB_TMEM(4, 4, 5, 6, 7, 8)
PTXLAB_TMEM(8, 8, 9, 10, 11, 12)
PTXLAB_TMEM(16, 16, 17, 18, 19, 20)
PTXLAB_TMEM(32, 32, 33, 34, 35, 36)
PTXLAB_TMEM(64, 64, 65, 66, 67, 68)
PTXLAB_TMEM(128, 128, 129, 130, 131, 132)
#undef PTXLAB_TMEM
#undef PTXLAB_INPUT
#undef PTXLAB_OUTPUT
#undef PTXLAB_TEXT

template <Tmem shape, int num, bool packed, int registers>
__device__ __forceinline__ void check_move()
{
    static_assert((num & (num - 1)) == 0 && num >= 1 && num <= 128, "num: 1, 2, 4, ... 128");
    static_assert(num * registers_of_one<shape> <= 128, "at most 128 registers");
    static_assert(registers == num * registers_of_one<shape>, "16x128b has 2 registers each, 16x256b has 4");
}

}  // namespace tcgen05_text

// A whole warp reads tensor memory from this address on: columns to the right of it in 32 lanes (32x32b), or
// in 16. A warp reaches the quarter of the lanes that its number in the warpgroup says. The registers may be
// read after tcgen05_wait_ld. `split` is how many columns on the second half of 16x32bx2 begins.
template <Tmem shape, int num, bool packed = false, int split = 0, int registers>
__device__ __forceinline__ void tcgen05_ld(unsigned (&r)[registers], unsigned address)
{
    using namespace tcgen05_text;
    check_move<shape, num, packed, registers>();
    if constexpr (shape == Tmem::s16x32bx2)
        Asm<registers>::template ld_split<Shape<shape>, num, Pack<packed, true>, split>(r, address);
    else
        Asm<registers>::template ld<Shape<shape>, num, Pack<packed, true>>(r, address);
}

// The same the other way.
template <Tmem shape, int num, bool packed = false, int split = 0, int registers>
__device__ __forceinline__ void tcgen05_st(unsigned address, const unsigned (&r)[registers])
{
    using namespace tcgen05_text;
    check_move<shape, num, packed, registers>();
    if constexpr (shape == Tmem::s16x32bx2)
        Asm<registers>::template st_split<Shape<shape>, num, Pack<packed, false>, split>(r, address);
    else
        Asm<registers>::template st<Shape<shape>, num, Pack<packed, false>>(r, address);
}

// Until the loads of this thread have arrived; the compiler moves no use of these registers before it.
template <int registers>
__device__ __forceinline__ void tcgen05_wait_ld(unsigned (&r)[registers])
{
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < registers; ++i)
        asm volatile("" : "+r"(r[i]));
}

__device__ __forceinline__ void tcgen05_wait_st()
{
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
}

// One thread copies what a descriptor of shared memory stands for to tensor memory.
template <Tcgen05Copy shape, int cta_group>
__device__ __forceinline__ void tcgen05_cp(unsigned address, unsigned long long descriptor)
{
    asm volatile("tcgen05.cp.cta_group::%2.%3 [%0], %1;" ::"r"(address), "l"(descriptor), "n"(cta_group),
                 "C"(tcgen05_text::Copy<shape>::text)
                 : "memory");
}

// One thread moves eight columns of 32 lanes by one lane.
template <int cta_group>
__device__ __forceinline__ void tcgen05_shift(unsigned address)
{
    asm volatile("tcgen05.shift.cta_group::%1.down [%0];" ::"r"(address), "n"(cta_group) : "memory");
}

// The mbarrier (in the shared window) counts one arrival when all mma, cp and shift of this thread are done;
// with cta_group 2 that of both blocks of the pair, 0 and 1 of their cluster.
template <int cta_group>
__device__ __forceinline__ void tcgen05_commit(unsigned barrier)
{
    if constexpr (cta_group == 1)
        asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
                     ::"r"(barrier)
                     : "memory");
    else
        asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster"
                     ".multicast::cluster.b64 [%0], %1;" ::"r"(barrier),
                     "h"(static_cast<unsigned short>(3))
                     : "memory");
}

#define PTXLAB_MMA(a, constraint, type) \
    /* One thread: D = A B in tensor memory, plus what D held where `accumulate` is not 0. */ \
    template <Tcgen05Kind kind, int cta_group, bool weights_stationary> \
    __device__ __forceinline__ void tcgen05_mma(unsigned d, type a_operand, unsigned long long b, \
                                                unsigned instruction, unsigned accumulate) \
    { \
        asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %4, 0;\n" \
                     "tcgen05.mma%5.cta_group::%6.kind::%7 [%0], " a ", %2, %3, p;\n}" ::"r"(d), \
                     constraint(a_operand), "l"(b), "r"(instruction), "r"(accumulate), \
                     "C"(tcgen05_text::Stationary<weights_stationary>::text), "n"(cta_group), \
                     "C"(tcgen05_text::Kind<kind>::text) \
                     : "memory"); \
    } \
    /* The same with scales of A and B in tensor memory. */ \
    template <Tcgen05Kind kind, int cta_group> \
    __device__ __forceinline__ void tcgen05_mma_scaled(unsigned d, type a_operand, unsigned long long b, \
                                                       unsigned instruction, unsigned scale_a, \
                                                       unsigned scale_b, unsigned accumulate) \
    { \
        asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %6, 0;\n" \
                     "tcgen05.mma.cta_group::%7.kind::%8 [%0], " a ", %2, %3, [%4], [%5], p;\n}" ::"r"(d), \
                     constraint(a_operand), "l"(b), "r"(instruction), "r"(scale_a), "r"(scale_b), \
                     "r"(accumulate), "n"(cta_group), "C"(tcgen05_text::Kind<kind>::text) \
                     : "memory"); \
    }
PTXLAB_MMA("%1", "l", unsigned long long)    // A by a descriptor of shared memory
PTXLAB_MMA("[%1]", "r", unsigned)            // A in tensor memory
#undef PTXLAB_MMA

}  // namespace ptxlab
