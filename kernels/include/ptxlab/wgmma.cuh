// wgmma: the four warps of a warpgroup multiply A[64, k] by B[k, n] into registers. B lies in shared memory,
// A there or in registers. Source: PTX ISA, "Asynchronous warpgroup-level matrix instructions". It exists on
// sm_90a alone.
#pragma once

namespace ptxlab {

enum class Wgmma { f16, bf16, tf32, e4m3, e5m2, s8, u8, f32, s32 };

// Ordinary stores to shared memory become visible to wgmma, which reads it through another proxy. Each
// thread that stored calls this; then all of them meet in a barrier.
__device__ __forceinline__ void fence_proxy_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Stands before the first wgmma, and wherever ordinary instructions have touched registers of the next one.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Makes a group of the wgmma issued since the last one.
__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most `pending` groups are unfinished. Only then may anything touch their registers, or
// overwrite the shared memory that they read.
template <int pending>
__device__ __forceinline__ void wgmma_wait()
{
    static_assert(pending >= 0 && pending <= 7, "wait_group takes 0 to 7");
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

namespace wgmma_text {

template <Wgmma a, Wgmma b, Wgmma acc>
struct Types {
    static_assert(a != a, "no such wgmma: PTX does not combine these types");
};

#define PTXLAB_TYPES(k, acc, a, b) \
    template <> \
    struct Types<Wgmma::a, Wgmma::b, Wgmma::acc> { \
        static constexpr char text[] = "k" #k "." #acc "." #a "." #b; \
    };
PTXLAB_TYPES(16, f32, f16, f16)
PTXLAB_TYPES(16, f16, f16, f16)
PTXLAB_TYPES(16, f32, bf16, bf16)
PTXLAB_TYPES(8, f32, tf32, tf32)
PTXLAB_TYPES(32, f32, e4m3, e4m3)
PTXLAB_TYPES(32, f32, e4m3, e5m2)
PTXLAB_TYPES(32, f32, e5m2, e4m3)
PTXLAB_TYPES(32, f32, e5m2, e5m2)
PTXLAB_TYPES(32, f16, e4m3, e4m3)
PTXLAB_TYPES(32, f16, e4m3, e5m2)
PTXLAB_TYPES(32, f16, e5m2, e4m3)
PTXLAB_TYPES(32, f16, e5m2, e5m2)
PTXLAB_TYPES(32, s32, s8, s8)
PTXLAB_TYPES(32, s32, s8, u8)
PTXLAB_TYPES(32, s32, u8, s8)
PTXLAB_TYPES(32, s32, u8, u8)
#undef PTXLAB_TYPES

// Whether A and B are negated: a pair of immediates that integers do not have.
template <bool integers>
struct Signs {
    static constexpr char text[] = ", 1, 1";
};
template <>
struct Signs<true> {
    static constexpr char text[] = "";
};

// Whether an operand in shared memory is MN-major: an immediate that only 16-bit types have.
template <bool exists, bool mn_major>
struct Major {
    static constexpr char text[] = "";
};
template <>
struct Major<true, false> {
    static constexpr char text[] = ", 0";
};
template <>
struct Major<true, true> {
    static constexpr char text[] = ", 1";
};

// The instruction with so many registers of accumulators.
template <int registers>
struct Asm;

// F(1) F(2) ... up to one less than the number in the name.
#define PTXLAB_BELOW_2(F) F(1)
#define PTXLAB_BELOW_4(F) PTXLAB_BELOW_2(F) F(2) F(3)
#define PTXLAB_BELOW_6(F) PTXLAB_BELOW_4(F) F(4) F(5)
#define PTXLAB_BELOW_8(F) PTXLAB_BELOW_6(F) F(6) F(7)
#define PTXLAB_BELOW_10(F) PTXLAB_BELOW_8(F) F(8) F(9)
#define PTXLAB_BELOW_12(F) PTXLAB_BELOW_10(F) F(10) F(11)
#define PTXLAB_BELOW_14(F) PTXLAB_BELOW_12(F) F(12) F(13)
#define PTXLAB_BELOW_16(F) PTXLAB_BELOW_14(F) F(14) F(15)
#define PTXLAB_BELOW_18(F) PTXLAB_BELOW_16(F) F(16) F(17)
#define PTXLAB_BELOW_20(F) PTXLAB_BELOW_18(F) F(18) F(19)
#define PTXLAB_BELOW_22(F) PTXLAB_BELOW_20(F) F(20) F(21)
#define PTXLAB_BELOW_24(F) PTXLAB_BELOW_22(F) F(22) F(23)
#define PTXLAB_BELOW_26(F) PTXLAB_BELOW_24(F) F(24) F(25)
#define PTXLAB_BELOW_28(F) PTXLAB_BELOW_26(F) F(26) F(27)
#define PTXLAB_BELOW_30(F) PTXLAB_BELOW_28(F) F(28) F(29)
#define PTXLAB_BELOW_32(F) PTXLAB_BELOW_30(F) F(30) F(31)
#define PTXLAB_BELOW_34(F) PTXLAB_BELOW_32(F) F(32) F(33)
#define PTXLAB_BELOW_36(F) PTXLAB_BELOW_34(F) F(34) F(35)
#define PTXLAB_BELOW_38(F) PTXLAB_BELOW_36(F) F(36) F(37)
#define PTXLAB_BELOW_40(F) PTXLAB_BELOW_38(F) F(38) F(39)
#define PTXLAB_BELOW_42(F) PTXLAB_BELOW_40(F) F(40) F(41)
#define PTXLAB_BELOW_44(F) PTXLAB_BELOW_42(F) F(42) F(43)
#define PTXLAB_BELOW_46(F) PTXLAB_BELOW_44(F) F(44) F(45)
#define PTXLAB_BELOW_48(F) PTXLAB_BELOW_46(F) F(46) F(47)
#define PTXLAB_BELOW_50(F) PTXLAB_BELOW_48(F) F(48) F(49)
#define PTXLAB_BELOW_52(F) PTXLAB_BELOW_50(F) F(50) F(51)
#define PTXLAB_BELOW_54(F) PTXLAB_BELOW_52(F) F(52) F(53)
#define PTXLAB_BELOW_56(F) PTXLAB_BELOW_54(F) F(54) F(55)
#define PTXLAB_BELOW_58(F) PTXLAB_BELOW_56(F) F(56) F(57)
#define PTXLAB_BELOW_60(F) PTXLAB_BELOW_58(F) F(58) F(59)
#define PTXLAB_BELOW_62(F) PTXLAB_BELOW_60(F) F(60) F(61)
#define PTXLAB_BELOW_64(F) PTXLAB_BELOW_62(F) F(62) F(63)
#define PTXLAB_BELOW_68(F) PTXLAB_BELOW_64(F) F(64) F(65) F(66) F(67)
#define PTXLAB_BELOW_72(F) PTXLAB_BELOW_68(F) F(68) F(69) F(70) F(71)
#define PTXLAB_BELOW_76(F) PTXLAB_BELOW_72(F) F(72) F(73) F(74) F(75)
#define PTXLAB_BELOW_80(F) PTXLAB_BELOW_76(F) F(76) F(77) F(78) F(79)
#define PTXLAB_BELOW_84(F) PTXLAB_BELOW_80(F) F(80) F(81) F(82) F(83)
#define PTXLAB_BELOW_88(F) PTXLAB_BELOW_84(F) F(84) F(85) F(86) F(87)
#define PTXLAB_BELOW_92(F) PTXLAB_BELOW_88(F) F(88) F(89) F(90) F(91)
#define PTXLAB_BELOW_96(F) PTXLAB_BELOW_92(F) F(92) F(93) F(94) F(95)
#define PTXLAB_BELOW_100(F) PTXLAB_BELOW_96(F) F(96) F(97) F(98) F(99)
#define PTXLAB_BELOW_104(F) PTXLAB_BELOW_100(F) F(100) F(101) F(102) F(103)
#define PTXLAB_BELOW_108(F) PTXLAB_BELOW_104(F) F(104) F(105) F(106) F(107)
#define PTXLAB_BELOW_112(F) PTXLAB_BELOW_108(F) F(108) F(109) F(110) F(111)
#define PTXLAB_BELOW_116(F) PTXLAB_BELOW_112(F) F(112) F(113) F(114) F(115)
#define PTXLAB_BELOW_120(F) PTXLAB_BELOW_116(F) F(116) F(117) F(118) F(119)
#define PTXLAB_BELOW_124(F) PTXLAB_BELOW_120(F) F(120) F(121) F(122) F(123)
#define PTXLAB_BELOW_128(F) PTXLAB_BELOW_124(F) F(124) F(125) F(126) F(127)

#define PTXLAB_TEXT(i) ", %" #i
#define PTXLAB_OPERAND(i) , "+r"(d[i])

// r registers of accumulators are the asm's operands %0 to %r-1; p0 to p9 are the numbers that follow.
#define PTXLAB_WGMMA(r, p0, p1, p2, p3, p4, p5, p6, p7, p8, p9) \
    template <> \
    struct Asm<r> { \
        template <int n, typename Types, typename Signs, typename MajorA, typename MajorB> \
        __device__ __forceinline__ static void run(unsigned (&d)[r], unsigned long long a, \
                                                   unsigned long long b, unsigned accumulate) \
        { \
            asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %" #p2 ", 0;\n" \
                         "wgmma.mma_async.sync.aligned.m64n%" #p3 "%" #p4 " {%0" \
                         PTXLAB_BELOW_##r(PTXLAB_TEXT) \
                         "}, %" #p0 ", %" #p1 ", p%" #p5 "%" #p6 "%" #p7 ";\n}" \
                         : "+r"(d[0]) PTXLAB_BELOW_##r(PTXLAB_OPERAND) \
                         : "l"(a), "l"(b), "r"(accumulate), "n"(n), "C"(Types::text), "C"(Signs::text), \
                           "C"(MajorA::text), "C"(MajorB::text) \
                         : "memory"); \
        } \
        template <int n, typename Types, typename Signs, typename, typename MajorB> \
        __device__ __forceinline__ static void run(unsigned (&d)[r], const uint4 &a, \
                                                   unsigned long long b, unsigned accumulate) \
        { \
            asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %" #p5 ", 0;\n" \
                         "wgmma.mma_async.sync.aligned.m64n%" #p6 "%" #p7 " {%0" \
                         PTXLAB_BELOW_##r(PTXLAB_TEXT) \
                         "}, {%" #p0 ", %" #p1 ", %" #p2 ", %" #p3 "}, %" #p4 ", p%" #p8 "%" #p9 ";\n}" \
                         : "+r"(d[0]) PTXLAB_BELOW_##r(PTXLAB_OPERAND) \
                         : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b), "r"(accumulate), "n"(n), \
                           "C"(Types::text), "C"(Signs::text), "C"(MajorB::text) \
                         : "memory"); \
        } \
    };
PTXLAB_WGMMA(2, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
PTXLAB_WGMMA(4, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
PTXLAB_WGMMA(6, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
PTXLAB_WGMMA(8, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17)
PTXLAB_WGMMA(10, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19)
PTXLAB_WGMMA(12, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21)
PTXLAB_WGMMA(14, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23)
PTXLAB_WGMMA(16, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25)
PTXLAB_WGMMA(18, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27)
PTXLAB_WGMMA(20, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29)
PTXLAB_WGMMA(22, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31)
PTXLAB_WGMMA(24, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33)
PTXLAB_WGMMA(26, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35)
PTXLAB_WGMMA(28, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37)
PTXLAB_WGMMA(30, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39)
PTXLAB_WGMMA(32, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41)
PTXLAB_WGMMA(34, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43)
PTXLAB_WGMMA(36, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45)
PTXLAB_WGMMA(38, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47)
PTXLAB_WGMMA(40, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49)
PTXLAB_WGMMA(42, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51)
PTXLAB_WGMMA(44, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53)
PTXLAB_WGMMA(46, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55)
PTXLAB_WGMMA(48, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57)
PTXLAB_WGMMA(50, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59)
PTXLAB_WGMMA(52, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61)
PTXLAB_WGMMA(54, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63)
PTXLAB_WGMMA(56, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65)
PTXLAB_WGMMA(58, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67)
PTXLAB_WGMMA(60, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69)
PTXLAB_WGMMA(62, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71)
PTXLAB_WGMMA(64, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73)
PTXLAB_WGMMA(68, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77)
PTXLAB_WGMMA(72, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81)
PTXLAB_WGMMA(76, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85)
PTXLAB_WGMMA(80, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89)
PTXLAB_WGMMA(84, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93)
PTXLAB_WGMMA(88, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97)
PTXLAB_WGMMA(92, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101)
PTXLAB_WGMMA(96, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105)
PTXLAB_WGMMA(100, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109)
PTXLAB_WGMMA(104, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113)
PTXLAB_WGMMA(108, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117)
PTXLAB_WGMMA(112, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121)
PTXLAB_WGMMA(116, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125)
PTXLAB_WGMMA(120, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129)
PTXLAB_WGMMA(124, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133)
PTXLAB_WGMMA(128, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137)

#undef PTXLAB_WGMMA
#undef PTXLAB_OPERAND
#undef PTXLAB_TEXT

}  // namespace wgmma_text

// D = A B, plus what D held where `accumulate` is not 0. Accumulators are 32-bit registers, whatever is in
// them: n / 2 of f32 or s32, or n / 4 that hold two f16 each. `a` is a descriptor of shared memory, or the
// four registers that hold a thread's part of A; `b` is a descriptor.
template <int n, Wgmma a_type, Wgmma b_type, Wgmma acc, bool a_mn_major, bool b_mn_major, typename A,
          int registers>
__device__ __forceinline__ void wgmma(unsigned (&d)[registers], const A &a, unsigned long long b,
                                      unsigned accumulate)
{
    constexpr bool integers = acc == Wgmma::s32, halves = a_type == Wgmma::f16 || a_type == Wgmma::bf16;
    static_assert(n % 8 == 0 && n >= 8 && n <= 256, "n: multiples of 8 from 8 to 256");
    static_assert(!integers || n <= 32 || n % 16 == 0, "n of 8-bit integers: 8, 16, 24, 32, 48, 64, ...");
    static_assert(registers == (acc == Wgmma::f16 ? n / 4 : n / 2), "d has n / 2 registers, n / 4 of f16");
    static_assert(halves || !(a_mn_major || b_mn_major), "only f16 and bf16 may be MN-major");
    wgmma_text::Asm<registers>::template run<n, wgmma_text::Types<a_type, b_type, acc>,
                                             wgmma_text::Signs<integers>,
                                             wgmma_text::Major<halves, a_mn_major>,
                                             wgmma_text::Major<halves, b_mn_major>>(d, a, b, accumulate);
}

}  // namespace ptxlab
