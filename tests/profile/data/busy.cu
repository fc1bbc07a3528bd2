// No bank conflict, and yet the L1's raw conflict counter is not zero: each warp runs `rounds` rounds of 1 cp.async
// of 16 bytes a lane past the L1, 1 clean STS.64 and 1 clean LDS.32. The data that cp.async brings takes the same
// path as the other two.

extern "C" __global__ void busy(const uint4 *in, unsigned *out, int rounds)
{
    __shared__ __align__(128) uint4 tile[8][128];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(tile[warp]));
    unsigned sum = 0, word;

#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                     ::"r"(base + 1024 + 16 * lane), "l"(in + static_cast<size_t>(round) * threads + thread)
                     : "memory");
        asm volatile("st.shared.v2.b32 [%0], {%1, %1};" ::"r"(base + 8 * lane), "r"(sum) : "memory");
        __syncwarp();
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(base + 4 * lane) : "memory");
        __syncwarp();
        sum += word;
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    out[thread] = sum;
}
