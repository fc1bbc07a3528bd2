// Recomputes every element of C = activation(alpha A x B + beta C + bias) in float64 and compares. Nothing is
// sampled and nothing skipped.
//
// Method: a block owns 64x64 elements, a thread 4x4 of them; slabs of A and B, 32 deep in k, pass through
// shared memory as doubles. The products of two inputs are exact in float64, and so is every sum of
// theirs as far as the bound below can tell. The matrices are read through strides, so the reference knows
// nothing of the layout code that is on trial.
//
// The bound. Let S be the running sum after each 16 values of k and P the sum of all |a||b|. Then an
// element may differ from the exact sum by
//     e = unit * (sum over the steps of |S|) + magnitude_unit * P + floor
// whose derivation stands in ptxlab/experiments/gemm/bound.py. Where P <= exact_limit and the
// inputs are integers every partial sum is exact in the accumulator, and e = 0. Rounding is monotone, so a
// right sum lies between those of S - e and S + e in the accumulator's type, both inclusive; and what goes
// into the activation between what is made of these two, T = alpha * sum, U = beta * C and V = bias:
// T + U + V, less or more
//     s = scale_unit * (|T| + |U| + |V|) + scale_floor
// in float32. s = 0 where nothing is scaled or added, and where |alpha| P + |U| + |V| <= scale_exact_limit
// with integers. A right result lies between the least and the greatest that the activation makes of that
// interval, less or more activation_unit of the larger end, in float32 and then in the output's type. With
// e = s = 0 and a unit of 0 that is one value. NaN lies in no interval.
//
// 8-bit floats are summed with so few bits that the bound says little. But how is known to the last bit, so
// what has summed them in one chain, k in ascending order, must have that very sum: then S - e and S + e
// above are both what add_as_wgmma() makes.
//
// An element ends in exactly one class: nan or infinite (what goes into the activation is, because an input
// is infinite; nothing is compared), wrong, overflow (the reference is finite, but its rounding or the
// permitted result is infinite: equal infinities prove nothing), or verified.
//
// Macros: TYPE (those of ptxlab/gemm_types.cuh), ACCUMULATE (float, half, int), OUT (half, __nv_bfloat16,
// float, int), BIAS (1: there is one), ACTIVATION (none, relu, gelu), KERNEL.

#include <ptxlab/gemm_types.cuh>

constexpr int TILE = 64;     // rows and columns of C of a block
constexpr int SLAB = 32;     // depth in k of what shared memory holds, and of wgmma on 8-bit floats
constexpr int STEP = 16;     // depth in k of one step of the bound
constexpr int THREADS = 16;  // along each side of the block
constexpr int OWN = TILE / THREADS;
constexpr int PITCH = TILE + 1;  // doubles; an odd pitch spreads a column over all banks

using int64 = long long;

enum Class { VERIFIED, WRONG, OVERFLOWED, INFINITE, NOT_A_NUMBER, CLASSES };

struct Element {  // ELEMENT in ptxlab/experiments/gemm/check.py
    int row, col;
    double result, reference, low, high;
};

struct Summary {  // of one block; SUMMARY in check.py
    unsigned count[CLASSES];
    unsigned has_worst;  // whether any error is finite
    Element worst;       // the element with the largest finite error
};

__device__ double through(float, double x) { return __double2float_rn(x); }

__device__ double through(half, double x) { return __half2float(__double2half(x)); }

__device__ double through(__nv_bfloat16, double x) { return __bfloat162float(__double2bfloat16(x)); }

__device__ double through(int, double x) { return x; }  // sums of integers are integers, and fit

template <typename T>
__device__ double number(T x)
{
    return float(x);
}

__device__ double number(int x) { return x; }

// What sums pass through on their way out: float32, in which they are scaled, or nothing if they stay
// integers.
template <typename Out>
struct WayOut {
    using Type = float;
};
template <>
struct WayOut<int> {
    using Type = int;
};
using Between = WayOut<OUT>::Type;

// What the kernel's own last step does to a scaled sum.
__device__ double written(double x) { return through(OUT(), through(Between(), x)); }

// Activations, each with where it is least: anywhere where it only rises.
struct none {
    static constexpr double LEAST_AT = 0.0;
    static __device__ double of(double x) { return x; }
};

struct relu {
    static constexpr double LEAST_AT = 0.0;
    static __device__ double of(double x) { return x < 0.0 ? 0.0 : x; }
};

struct gelu {
    static constexpr double LEAST_AT = -0.7524614220710163;
    static __device__ double of(double x)
    {
        constexpr double root_of_2_by_pi = 0.7978845608028654;
        return x / (1.0 + exp(-2.0 * root_of_2_by_pi * (x + 0.044715 * x * x * x)));
    }
};

// How far what goes into an activation may be off, and what comes out of it: see above.
struct Scaling {
    double alpha, beta, unit, floor, exact_limit, activation_unit;
};

// Fills in the least and the greatest right result, where the argument lies between these two.
__device__ void permit(Element& element, double low, double high, double unit)
{
    low = through(Between(), low);
    high = through(Between(), high);
    const double lost = unit == 0.0 ? 0.0 : unit * fmax(fabs(low), fabs(high));
    const double ends[2] = {ACTIVATION::of(low), ACTIVATION::of(high)};
    const double bottom = ACTIVATION::of(fmin(fmax(ACTIVATION::LEAST_AT, low), high));
    const double least = fmin(bottom, fmin(ends[0], ends[1]));
    element.low = isnan(ends[0]) ? ends[0] : written(least - lost);
    element.high = isnan(ends[1]) ? ends[1] : written(fmax(ends[0], ends[1]) + lost);
}

// Fills in the reference for the sum s, and its interval for sums from `least` to `greatest`. Returns what
// goes into the activation.
__device__ double expect(Element& element, const Scaling& by, double s, double least, double greatest,
                         double magnitude, double before, double bias)
{
    const double old = by.beta == 0.0 ? 0.0 : by.beta * before;  // not read where beta is zero
    const double below = by.alpha * through(ACCUMULATE(), least);
    const double above = by.alpha * through(ACCUMULATE(), greatest);
    const double addends = fabs(old) + fabs(bias), added = old + bias;
    const bool exact = fabs(by.alpha) * magnitude + addends <= by.exact_limit;
    const double most = fmax(fabs(below), fabs(above)) + addends;
    const double slack = exact || by.unit == 0.0 ? 0.0 : by.unit * most + by.floor;
    const double argument = by.alpha * s + added;
    element.reference = ACTIVATION::of(argument);
    permit(element, (by.alpha < 0.0 ? above : below) + added - slack,
           (by.alpha < 0.0 ? below : above) + added + slack, by.activation_unit);
    return argument;
}

// ``rounded`` is the reference as it comes out of the accumulator and the output type.
__device__ Class classify(const Element& e, double argument, double rounded)
{
    if (isnan(argument)) return NOT_A_NUMBER;
    if (isinf(argument)) return INFINITE;
    if (isnan(e.low) || isnan(e.high)) return OVERFLOWED;  // an infinite sum is permitted, and scaled by zero
    if (!(e.low <= e.result && e.result <= e.high)) return WRONG;
    return isfinite(e.result) && isfinite(rounded) ? VERIFIED : OVERFLOWED;
}

// Copies lines [first, first + TILE) of one operand, SLAB deep from k0 on, into shared memory, zeros
// outside. Neighbouring threads read neighbouring elements, whichever way the matrix is stored.
__device__ void stage(double (*slab)[PITCH], const TYPE* matrix, int64 first, int64 lines, int64 k0,
                      int64 depth, int64 line_stride, int64 k_stride)
{
    for (int i = threadIdx.x; i < TILE * SLAB; i += THREADS * THREADS) {
        const int line = k_stride == 1 ? i / SLAB : i % TILE;
        const int k = k_stride == 1 ? i % SLAB : i / TILE;
        const bool inside = first + line < lines && k0 + k < depth;
        slab[k][line] = inside ? number(matrix[(first + line) * line_stride + (k0 + k) * k_stride]) : 0.0;
    }
}

template <typename T>
constexpr float LEAST_NORMAL = 0.0f;  // of 8-bit floats alone
template <>
constexpr float LEAST_NORMAL<__nv_fp8_e4m3> = 0x1p-6f;
template <>
constexpr float LEAST_NORMAL<__nv_fp8_e5m2> = 0x1p-14f;

// The power of two that a number is aligned by: a subnormal factor by that of the smallest normal one.
__device__ float power_of(float x) { return __int_as_float(__float_as_int(x) & 0x7f800000); }

__device__ float power_of_factor(double x)
{
    return x == 0.0 ? 0.0f : fmaxf(power_of(float(x)), LEAST_NORMAL<TYPE>);
}

// Adds a slab to sums of 8-bit floats as wgmma does, and as ptxlab/isa/accumulate.py says it: 32 products
// and the sum are aligned to the largest exponent among them, keep 13 bits behind it, and lose the rest; the
// result keeps 13 bits behind its own first.
__device__ void add_as_wgmma(float (&sum)[OWN][OWN], const double (*a)[PITCH], int y0,
                             const double (*b)[PITCH], int x0)
{
    float top[OWN][OWN];
    int kept[OWN][OWN];
    for (int i = 0; i < OWN; ++i) {
        for (int j = 0; j < OWN; ++j) top[i][j] = power_of(sum[i][j]);
    }
#pragma unroll 4
    for (int kk = 0; kk < SLAB; ++kk) {
        for (int i = 0; i < OWN; ++i) {
            const float x = power_of_factor(a[kk][y0 + i * THREADS]);
            for (int j = 0; j < OWN; ++j)
                top[i][j] = fmaxf(top[i][j], x * power_of_factor(b[kk][x0 + j * THREADS]));
        }
    }
    for (int i = 0; i < OWN; ++i) {
        for (int j = 0; j < OWN; ++j) {
            top[i][j] = top[i][j] == 0.0f ? 1.0f : 0x1p13f / top[i][j];  // from here on: one by the last bit
            kept[i][j] = __float2int_rz(sum[i][j] * top[i][j]);
        }
    }
#pragma unroll 4
    for (int kk = 0; kk < SLAB; ++kk) {
        for (int i = 0; i < OWN; ++i) {
            const float x = a[kk][y0 + i * THREADS];
            for (int j = 0; j < OWN; ++j)
                kept[i][j] += __float2int_rz(x * float(b[kk][x0 + j * THREADS]) * top[i][j]);
        }
    }
    for (int i = 0; i < OWN; ++i) {
        for (int j = 0; j < OWN; ++j)
            sum[i][j] = __int_as_float(__float_as_int(float(kept[i][j])) & ~0x3ff) / top[i][j];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS * THREADS)
KERNEL(const TYPE* a, const TYPE* b, const OUT* c, const OUT* before, const OUT* bias, Summary* summaries,
       Element* list, unsigned* listed, unsigned capacity, int64 m, int64 n, int64 k, int64 a_row,
       int64 a_col, int64 b_row, int64 b_col, int64 first_tile_row, double unit, double magnitude_unit,
       double floor, double exact_limit, double alpha, double beta, double scale_unit, double scale_floor,
       double scale_exact_limit, double activation_unit,
       int64 chain)  // 0, or after how many values of k what wgmma has summed is added up in float32
{
    __shared__ double a_slab[SLAB][PITCH];
    __shared__ double b_slab[SLAB][PITCH];
    __shared__ Summary summary;
    __shared__ unsigned long long largest;  // error as bits plus 1; doubles >= 0 sort like their bits
    __shared__ unsigned owner;

    const int y0 = threadIdx.x / THREADS, x0 = threadIdx.x % THREADS;
    const int64 tile_row = first_tile_row + blockIdx.y;
    const int64 row0 = tile_row * TILE, col0 = int64(blockIdx.x) * TILE;

    double sum[OWN][OWN] = {}, partials[OWN][OWN] = {}, magnitude[OWN][OWN] = {};
    float part[OWN][OWN] = {}, chained[OWN][OWN] = {};
    for (int64 k0 = 0; k0 < k; k0 += SLAB) {
        __syncthreads();
        stage(a_slab, a, row0, m, k0, k, a_row, a_col);
        stage(b_slab, b, col0, n, k0, k, b_col, b_row);
        __syncthreads();
#pragma unroll 8
        for (int kk = 0; kk < SLAB; ++kk) {
            for (int i = 0; i < OWN; ++i) {
                const double x = a_slab[kk][y0 + i * THREADS];
                for (int j = 0; j < OWN; ++j) {
                    const double y = b_slab[kk][x0 + j * THREADS];
                    sum[i][j] = fma(x, y, sum[i][j]);
                    magnitude[i][j] = fma(fabs(x), fabs(y), magnitude[i][j]);
                    if (kk % STEP == STEP - 1 && k0 + kk / STEP * STEP < k) partials[i][j] += fabs(sum[i][j]);
                }
            }
        }
        if (LEAST_NORMAL<TYPE> == 0.0f || chain == 0) continue;
        add_as_wgmma(part, a_slab, y0, b_slab, x0);
        if ((k0 + SLAB) % chain != 0 && k0 + SLAB < k) continue;
        for (int i = 0; i < OWN; ++i) {
            for (int j = 0; j < OWN; ++j) {
                chained[i][j] += part[i][j];
                part[i][j] = 0.0f;
            }
        }
    }

    if (threadIdx.x == 0) {
        summary = Summary{};
        largest = 0;
        owner = ~0u;
    }
    __syncthreads();

    const Scaling scaling = {alpha, beta, scale_unit, scale_floor, scale_exact_limit, activation_unit};
    double worst_error = -1.0;
    Element worst = {};
    for (int i = 0; i < OWN; ++i) {
        for (int j = 0; j < OWN; ++j) {
            const int64 row = row0 + y0 + i * THREADS, col = col0 + x0 + j * THREADS;
            if (row >= m || col >= n) continue;
            const double s = sum[i][j], old = beta == 0.0 ? 0.0 : number(before[row * n + col]);
            const bool exact = magnitude[i][j] <= exact_limit;
            const double e = exact ? 0.0 : unit * partials[i][j] + magnitude_unit * magnitude[i][j] + floor;
            const double least = chain == 0 ? s - e : chained[i][j], greatest = chain == 0 ? s + e : least;
            Element element = {int(row), int(col), number(c[row * n + col])};
            const double shift = BIAS ? number(bias[col]) : 0.0;
            const double argument = expect(element, scaling, s, least, greatest, magnitude[i][j], old, shift);
            const double added = (beta == 0.0 ? 0.0 : beta * old) + shift;
            const double rounded = written(ACTIVATION::of(alpha * through(ACCUMULATE(), s) + added));
            const Class verdict = classify(element, argument, rounded);
            atomicAdd(&summary.count[verdict], 1u);
            if (verdict == WRONG) {
                const unsigned slot = atomicAdd(listed, 1u);
                if (slot < capacity) list[slot] = element;
            }
            const double error = fabs(element.result - element.reference);
            if (error > worst_error && isfinite(error)) {
                worst_error = error;
                worst = element;
            }
        }
    }

    // The largest error of the block; of several equal ones that of the lowest thread.
    const unsigned long long bits = worst_error < 0.0 ? 0 : __double_as_longlong(worst_error) + 1ull;
    atomicMax(&largest, bits);
    __syncthreads();
    if (bits != 0 && bits == largest) atomicMin(&owner, threadIdx.x);
    __syncthreads();
    if (threadIdx.x == owner) {
        summary.has_worst = 1;
        summary.worst = worst;
    }
    __syncthreads();
    if (threadIdx.x == 0) summaries[tile_row * gridDim.x + blockIdx.x] = summary;
}
