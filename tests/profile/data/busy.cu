// Much traffic to global memory, and shared memory used without a single bank conflict. Each warp runs `rounds`
// rounds of: LDG.32 whose lanes lie 128 bytes apart, cp.async of 4 bytes a lane through the L1 and of 16 bytes a
// lane past it, and clean STS.64, LDS.32 and LDSM.x4.

extern "C" __global__ void busy(const uint4 *in, unsigned *out, int rounds)
{
    __shared__ __align__(128) uint4 tile[8][64];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(tile[warp]));
    const unsigned *words = reinterpret_cast<const unsigned *>(in);
    unsigned sum = 0;

#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
        const unsigned far = words[(round * 4u + warp + 32 * lane) % (4u * threads)];
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                     ::"r"(base + 4 * lane), "l"(words + static_cast<size_t>(round) * threads + thread) : "memory");
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                     ::"r"(base + 512 + 16 * lane), "l"(in + static_cast<size_t>(round) * threads + thread)
                     : "memory");
        asm volatile("st.shared.v2.b32 [%0], {%1, %1};" ::"r"(base + 128 + 8 * lane), "r"(far) : "memory");
        unsigned r[4], word;
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(base + 128 + 4 * lane) : "memory");
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(base + 16 * lane) : "memory");
        asm volatile("cp.async.wait_all;" ::: "memory");
        sum += r[0] + r[1] + r[2] + r[3] + word;
    }
    (void)sum;  // it holds what shared memory held before, too
    out[thread] = words[thread];
}
