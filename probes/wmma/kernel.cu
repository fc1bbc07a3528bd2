// One warp loads fragments of A, B and C with load_matrix_sync and writes out all that each lane got.
// Block p takes bit plane p of the coordinates. The last block takes numbers instead, multiplies them with
// mma_sync and writes what each lane got of D. The first block also fills an accumulator with the index of
// lane and element and stores it, which shows where store_matrix_sync puts each of them.
//
// Macros: KERNEL, M, N, K, TYPE (of A and B), ACC (of C and D), A_LAYOUT and B_LAYOUT (row_major or
// col_major), C_LAYOUT (mem_row_major or mem_col_major), SHARED (1: load from shared memory, 0: from global),
// BIT_OP (of b1: 1 is xor, 2 is and; 0 of other types).

#include <mma.h>

namespace wmma = nvcuda::wmma;

// Every storage element of a fragment, as registers hold them: narrow ones packed from the low bits up.
template <class Fragment>
__device__ void dump(const Fragment &fragment, void *registers, unsigned plane)
{
    constexpr unsigned count = Fragment::num_storage_elements;
    auto *out = static_cast<typename Fragment::storage_element_type *>(registers);
    for (unsigned i = 0; i < count; ++i)
        out[(plane * 32 + threadIdx.x) * count + i] = fragment.x[i];
}

template <int bit_op, class C, class A, class B>
__device__ void multiply(C &c, const A &a, const B &b)
{
    if constexpr (bit_op == 0)
        mma_sync(c, a, b, c);
    else
        bmma_sync(c, a, b, c, static_cast<wmma::experimental::bmmaBitOp>(bit_op));
}

template <class Fragment>
__device__ auto elements(const uint4 *memory)
{
    return reinterpret_cast<const typename Fragment::storage_element_type *>(memory);
}

// A number's bits as an element of an accumulator.
template <class T>
__device__ T from_bits(unsigned long long bits)
{
    T value;
    memcpy(&value, &bits, sizeof(T));  // little endian: the low bytes
    return value;
}

extern "C" __global__ void KERNEL(const uint4 *matrices,    // [planes][chunks]: A, B and C of each plane
                                  void *a_registers,        // [planes][32 lanes][registers]
                                  void *b_registers,        // the same
                                  void *c_registers,        // the same
                                  void *d_registers,        // [32][registers]
                                  ACC *stored,              // M x N in the order of C_LAYOUT, without gaps
                                  unsigned chunks,          // of 16 bytes: one plane
                                  unsigned b_start, unsigned c_start,               // chunks before B and C
                                  unsigned a_pitch, unsigned b_pitch, unsigned c_pitch)    // elements
{
    const unsigned plane = blockIdx.x;
    const uint4 *memory = matrices + plane * chunks;
#if SHARED
    extern __shared__ __align__(1024) uint4 shared[];
    for (unsigned i = threadIdx.x; i < chunks; i += 32)
        shared[i] = memory[i];
    __syncwarp();
    memory = shared;
#endif

    wmma::fragment<wmma::matrix_a, M, N, K, TYPE, wmma::A_LAYOUT> a;
    wmma::fragment<wmma::matrix_b, M, N, K, TYPE, wmma::B_LAYOUT> b;
    wmma::fragment<wmma::accumulator, M, N, K, ACC> c;
    load_matrix_sync(a, elements<decltype(a)>(memory), a_pitch);
    load_matrix_sync(b, elements<decltype(b)>(memory + b_start), b_pitch);
    load_matrix_sync(c, elements<decltype(c)>(memory + c_start), c_pitch, wmma::C_LAYOUT);
    dump(a, a_registers, plane);
    dump(b, b_registers, plane);
    dump(c, c_registers, plane);

    if (plane == gridDim.x - 1) {
        multiply<BIT_OP>(c, a, b);
        dump(c, d_registers, 0);
    }
    if (plane == 0) {
        for (unsigned i = 0; i < c.num_elements; ++i)
            c.x[i] = from_bits<ACC>(threadIdx.x * c.num_elements + i);
        store_matrix_sync(stored, c, wmma::C_LAYOUT == wmma::mem_row_major ? N : M, wmma::C_LAYOUT);
    }
}
