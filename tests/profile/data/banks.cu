// Every class of shared-memory instruction, in numbers that are easy to count. Each warp clears its tile with
// 32 clean STS.32 and then runs `rounds` rounds of 1 clean STS.32, 1 clean LDGSTS.128, 1 clean STSM.x2, 1 clean
// LDSM.x4, 1 LDS.32 whose 32 lanes all hit one bank, and 2 HMMA.16816.
//
// Lanes 0 and 1 sum up the numbers of the rounds, which the STSM put where they read; the others read zeros.

extern "C" __global__ void banks(const uint4 *in, unsigned *out, int rounds)
{
    __shared__ __align__(128) unsigned tile[2][32 * 32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(tile[warp]));
    float d[4] = {};
    unsigned sum = 0;

#pragma unroll 1
    for (int row = 0; row < 32; ++row)
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(base + 128 * row + 4 * lane), "r"(0) : "memory");
    __syncwarp();

#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(base + 4 * lane), "r"(round) : "memory");
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(base + 1024 + 16 * lane), "l"(in + lane)
                     : "memory");
        asm volatile("cp.async.wait_all;" ::: "memory");
        asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};"
                     ::"r"(base + 16 * (lane % 16)), "r"(round), "r"(round) : "memory");
        unsigned a[4], column;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(base + 16 * lane) : "memory");
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(column) : "r"(base + 128 * lane) : "memory");
        for (int half = 0; half < 2; ++half)
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7},"
                         " {%4, %5}, {%0, %1, %2, %3};"
                         : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                         : "r"(a[half]), "r"(a[1 - half]), "r"(a[2 + half]), "r"(a[3 - half]));
        sum += column;
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum + static_cast<unsigned>(d[0] + d[1] + d[2] + d[3]);
}
