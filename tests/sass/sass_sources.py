"""Kernels that the tests of SASS compile, and a generator of PTX with one mma each."""

from __future__ import annotations

from dataclasses import dataclass

LOOPS = r"""
__device__ void mma(float* d, unsigned a, unsigned b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%4,%4,%4},{%5,%5},"
               "{%0,%1,%2,%3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a), "r"(b));
}
#define KERNEL(name, pragma, count) \
  extern "C" __global__ void name(float* out, const unsigned* in, int n) { \
    float d[4] = {}; \
    _Pragma(pragma) for (int i = 0; i < count; i++) mma(d, in[0] + i, in[1]); \
    for (int i = 0; i < 4; i++) out[4 * threadIdx.x + i] = d[i]; \
  }
KERNEL(not_unrolled, "unroll 1", n)
KERNEL(by_four, "unroll 4", n)
KERNEL(fully, "unroll", 16)
extern "C" __global__ void nested(float* out, const int* in, int n) {
  float sum = 0;
  #pragma unroll 1
  for (int i = 0; i < n; i++) {
    #pragma unroll 1
    for (int j = in[i]; j > 0; j = in[j]) sum += out[j];
  }
  out[0] = sum;
}
extern "C" __global__ void spins(volatile int* flag) { while (*flag == 0) {} flag[1] = 2; }
extern "C" __global__ void forever() { for (;;) {} }
extern "C" __global__ void switches(int* p, int n) {
  #pragma unroll 1
  for (int i = 0; i < n; i++) {
    switch (p[i]) {
      case 0: p[i] = __clz(n); break;
      case 1: p[i] = n / 3; break;
      case 2: p[i] = __popc(i); break;
      case 3: p[i] *= n; break;
      case 4: p[i] = n % 7; break;
      case 5: p[i] = atomicAdd(p, 3); break;
      case 6: p[i] = n * n; break;
      default: p[i] = 9;
    }
  }
}
"""
"""Loops: one of an mma, nested ones, one without an end, and one around an indirect branch."""

RESOURCES = r"""
extern "C" __global__ void stores_one(float* p) { p[threadIdx.x] = 1; }
extern "C" __global__ void shares(float* p) {
  __shared__ float s[1024];
  s[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[0] = s[threadIdx.x ^ 3];
}
extern "C" __global__ void shares_dynamically(float* p) {
  extern __shared__ float s[];
  s[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[0] = s[threadIdx.x ^ 3];
}
extern "C" __global__ void __launch_bounds__(1024, 2) spills(float* p) {
  float x[64];
  #pragma unroll
  for (int i = 0; i < 64; i++) x[i] = p[i * 32 + threadIdx.x];
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 64; i++) p[i * 32 + threadIdx.x] = x[(i * 7) % 64] * x[i];
}
__device__ __noinline__ float apart(float x, unsigned a) {
  float d[4] = {x, x, x, x};
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%4,%4,%4},{%4,%4},"
               "{%0,%1,%2,%3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a));
  return d[0] + d[1] + d[2] + d[3];
}
extern "C" __global__ void calls(float* p, unsigned a) { p[0] = apart(p[1], a) + apart(p[2], a + 1); }
"""
"""Registers, shared memory, spills, and a tensor operation in a function that is not inlined."""

WGMMA = r"""
__device__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ void wait() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
__device__ void mma(float* d, unsigned long long a, unsigned long long b) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5,"
               " p, 1, 1, 0, 0;\n}\n"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
}
__device__ void resize() {
  if (threadIdx.x < 128) asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
  else asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
}
#define KERNEL(name) extern "C" __global__ void name(float* p, unsigned long long a)
#define LOAD float d[4] = {p[0], p[1], p[2], p[3]}
#define STORE for (int i = 0; i < 4; i++) p[i] = d[i]
KERNEL(unbounded) { resize(); p[threadIdx.x] = a; }
extern "C" __global__ void __launch_bounds__(256, 1) bounded(float* p) { resize(); p[threadIdx.x] = 1; }
KERNEL(no_fence) { LOAD; mma(d, a, a); commit(); wait(); STORE; }
KERNEL(no_wait) { LOAD; fence(); mma(d, a, a); commit(); STORE; }
KERNEL(twice) { LOAD; fence(); mma(d, a, a); mma(d, a, a); commit(); wait(); STORE; }
KERNEL(good) { LOAD; fence(); mma(d, a, a); mma(d, a + 2, a); commit(); wait(); STORE; }
KERNEL(branches) { LOAD; fence(); if (a) mma(d, a, a); commit(); wait(); STORE; }
KERNEL(empty_groups) { LOAD; fence(); mma(d, a, a); commit(); commit(); commit(); wait(); STORE; }
extern "C" __global__ void repeats(float* p, unsigned long long a, int n) {
  LOAD;
  #pragma unroll 1
  for (int j = 0; j < n; j++) {
    fence();
    #pragma unroll 1
    for (int i = 0; i < n; i++) mma(d, a + i, a);
    commit();
    wait();
  }
  STORE;
}
KERNEL(nothing) { commit(); wait(); p[0] = a; }
"""
"""What ptxas injects, merges and ignores."""

NAMES = r"""
namespace ns {
namespace inner { __global__ void deep(float* p) { p[0] = 1; } }
template <int N> __global__ void sized(float* p) { p[0] = N; }
template __global__ void sized<3>(float*);
template __global__ void sized<4>(float*);
}
namespace { __global__ void hidden(float* p) { p[0] = 1; } }
__global__ void spill(float* p) { p[0] = 2; }
"""
"""Kernels whose symbols are mangled."""

_PER_REGISTER = {"f16": 2, "tf32": 1, "s8": 4, "e4m3": 4, "s4": 8, "b1": 32, "f64": 1}


@dataclass(frozen=True)
class Mma:
    """An mma whose operands a generated kernel loads and whose result it stores."""

    kernel: str
    opcode: str
    m: int
    n: int
    k: int
    element: str

    @property
    def ptx(self) -> str:
        """The kernel's PTX."""
        wide = "f64" if self.element == "f64" else "b32"
        accumulator = {"f64": "f64", "s8": "b32", "s4": "b32", "b1": "b32"}.get(self.element, "f32")
        kinds = {"a": wide, "b": wide, "c": accumulator}
        counts = self._counts()
        names = {each: [f"%{each}{i}" for i in range(counts[each])] for each in kinds}
        lines = [f".visible .entry {self.kernel}(.param .u64 p) {{", ".reg .b64 %q;"]
        lines += [f".reg .{kinds[each]} %{each}<{counts[each]}>;" for each in kinds]
        lines.append("ld.param.u64 %q, [p];")
        offset = 0
        for each, kind in kinds.items():
            for name in names[each]:
                lines.append(f"ld.global.{kind} {name}, [%q+{offset}];")
                offset += 8
        a, b, c = ("{" + ",".join(names[each]) + "}" for each in "abc")
        lines.append(f"{self.opcode}\n    {c},\n    {a}, {b}, {c};")  # over several lines, as asm() often is
        lines += [f"st.global.{accumulator} [%q+{8 * i}], {name};" for i, name in enumerate(names["c"])]
        return "\n".join([*lines, "ret;", "}"])

    def _counts(self) -> dict[str, int]:
        if (self.m, self.n, self.k, self.element) == (8, 8, 4, "f16"):  # Volta's: four at once
            return {"a": 2, "b": 2, "c": 8}
        per = 32 * _PER_REGISTER[self.element]
        return {"a": self.m * self.k // per, "b": self.n * self.k // per, "c": self.m * self.n // 32}


def _mma(kernel: str, m: int, n: int, k: int, types: str, element: str, logic: str = "") -> Mma:
    return Mma(kernel, f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{types}{logic}", m, n, k, element)


F16 = _mma("f16", 16, 8, 16, "f32.f16.f16.f32", "f16")
VOLTA = _mma("volta", 8, 8, 4, "f32.f16.f16.f32", "f16")
FP8 = _mma("fp8", 16, 8, 32, "f32.e4m3.e4m3.f32", "e4m3")
FP8_SMALL = _mma("fp8_small", 16, 8, 16, "f32.e4m3.e4m3.f32", "e4m3")
S8 = _mma("s8", 16, 8, 32, "s32.s8.s8.s32", "s8")
S4 = _mma("s4", 16, 8, 64, "s32.s4.s4.s32", "s4")
B1_AND = _mma("b1_and", 16, 8, 256, "s32.b1.b1.s32", "b1", ".and.popc")
B1_XOR = _mma("b1_xor", 16, 8, 256, "s32.b1.b1.s32", "b1", ".xor.popc")
F64 = _mma("f64", 16, 8, 16, "f64.f64.f64.f64", "f64")


def module(target: str, *operations: Mma) -> str:
    """Return a PTX module with one kernel an operation."""
    header = f".version 9.0\n.target {target}\n.address_size 64\n"
    return header + "\n".join(each.ptx for each in operations) + "\n"
