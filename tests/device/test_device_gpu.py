"""The CUDA engine on a real device: memory, launches, faults, timings, the baseline."""

from __future__ import annotations

import dataclasses
import math
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from processes import gone

from ptxlab.bench.stats import compare, median
from ptxlab.device.client import Worker, wrapped_command
from ptxlab.device.cublas import LEGAL
from ptxlab.device.job import (
    LT,
    TORCH,
    Argument,
    Buffer,
    CublasGemm,
    Job,
    JobResult,
    Launch,
    MapArgument,
    Samples,
    Step,
    Timing,
)
from ptxlab.errors import DeviceError, MissingError, ToolError, UsageError
from ptxlab.isa.tensor_map import TensorMap
from ptxlab.toolchain.build import build_cuda

pytestmark = pytest.mark.gpu

SOURCE = r"""
using u32 = unsigned;
using u64 = unsigned long long;

extern "C" __global__ void every_other(u32* out) { out[2 * threadIdx.x] = threadIdx.x; }

extern "C" __global__ void poke(unsigned char* out, long long offset) { out[offset] = 1; }

extern "C" __global__ void addresses(u64* out, void* a, void* b)
{
    out[0] = u64(out);
    out[1] = u64(a);
    out[2] = u64(b);
}

extern "C" __global__ void scalars(u64* out, bool a, short b, int c, long long d, float e, double f)
{
    out[0] = a;
    out[1] = u64(b);
    out[2] = u64(c);
    out[3] = u64(d);
    out[4] = __float_as_uint(e);
    out[5] = __double_as_longlong(f);
}

extern "C" __global__ void last_shared_word(u32* out, u32 words)
{
    extern __shared__ u32 memory[];
    memory[words - 1] = 41;
    __syncthreads();
    *out = memory[words - 1] + 1;
}

extern "C" __global__ void cluster_ranks(u32* out)
{
    u32 rank = 0, count = 0;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
#endif
    out[2 * blockIdx.x] = rank;
    out[2 * blockIdx.x + 1] = count;
}

struct alignas(128) Map { u64 words[16]; };

extern "C" __global__ void map_words(const __grid_constant__ Map map, u64* out, u32 last)
{
    for (int i = 0; i < 16; ++i)
        out[16 * blockIdx.x + i] = map.words[i];
    if (blockIdx.x == 0) out[32] = last;
}

extern "C" __global__ void trap() { asm volatile("trap;"); }

extern "C" __global__ void wild() { *(volatile u32*)16 = 1; }

extern "C" __global__ void spin(volatile u32* flag) { while (*flag) { } }

extern "C" __global__ void shout() { printf("from the kernel\n"); }

extern "C" __global__ void busy(float* out, int rounds)
{
    float x = threadIdx.x;
    for (int i = 0; i < rounds; ++i)
        asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x));
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

extern "C" __global__ void read_all(const uint4* in, u32* out, u32 count)
{
    u32 sum = 0;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        sum ^= in[i].x ^ in[i].y ^ in[i].z ^ in[i].w;
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
"""


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """One worker for all tests, as a command has."""
    with Worker() as it:
        yield it


@pytest.fixture(scope="module")
def modules(worker: Worker) -> dict[str, bytes]:
    """The kernels, compiled for this device."""
    return {"m": build_cuda(SOURCE, name="device_test.cu", arch=worker.info().arch).cubin}


def launch(
    kernel: str,
    *arguments: Argument,
    grid: int = 1,
    block: int = 1,
    shared: int = 0,
    cluster: int | None = None,
) -> Launch:
    """Return a launch along x."""
    size = (cluster, 1, 1) if cluster else None
    return Launch("m", kernel, (grid, 1, 1), (block, 1, 1), arguments, shared, size)


def output(name: str, nbytes: int) -> Buffer:
    """Return a guarded buffer that comes back."""
    return Buffer(name, nbytes, download=True, canary=True)


def still_works(worker: Worker, modules: dict[str, bytes]) -> bool:
    """Return whether the next job runs."""
    job = Job(modules, (output("out", 4),), (launch("every_other", "out"),))
    return bool(worker.run(job).arrays["out"].view(np.uint32)[0] == 0)


def test_the_device_says_what_it_is(worker: Worker) -> None:
    """Every field is filled with something that a device can have."""
    info = worker.info()
    assert re.fullmatch(r"sm_\d{2,3}a?", info.arch)
    assert info.name
    assert info.multiprocessors > 0
    assert info.l2_bytes > 1 << 20
    assert info.shared_bytes_per_block > 48 << 10
    assert info.memory_bytes > 1 << 30
    assert re.fullmatch(r"\d+\.\d+(\.\d+)?", info.driver)
    assert re.fullmatch(r"\d+\.\d", info.cuda_driver_version)


def test_a_device_index_that_does_not_exist(worker: Worker) -> None:
    """The message says how many there are."""
    worker.info()
    with Worker(device=99) as other, pytest.raises(MissingError, match=r"no device 99: there .* \d+"):
        other.info()


def test_what_no_kernel_writes_is_poison(worker: Worker, modules: dict[str, bytes]) -> None:
    """A skipped element is 0xFFFFFFFF: NaN as a float, -1 as an integer."""
    job = Job(modules, (output("out", 16 * 4),), (launch("every_other", "out", block=8),))
    result = worker.run(job)
    words = result.arrays["out"].view(np.uint32)
    assert words[0::2].tolist() == list(range(8))
    assert (words[1::2] == 0xFFFFFFFF).all()
    assert np.isnan(words[1::2].view(np.float32)).all()
    assert result.damaged_canaries == []


def test_inputs_arrive_and_come_back(worker: Worker, modules: dict[str, bytes]) -> None:
    """An input that no step touches is unchanged; one that is not contiguous is sent in its order."""
    data = np.arange(60, dtype=np.float64).reshape(6, 10).T
    result = worker.run(Job(modules, (Buffer("in", data.nbytes, data, download=True),), ()))
    assert np.array_equal(result.arrays["in"].view(np.float64).reshape(10, 6), data)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (99, None),
        (100, "out: 1 bytes past its end from +0"),
        (4000, "out: 1 bytes past its end from +3900"),
        (-1, "out: 1 bytes before its start from -1"),
        (-1024, "out: 1 bytes before its start from -1024"),
    ],
)
def test_a_write_beside_a_buffer_is_found(
    worker: Worker, modules: dict[str, bytes], offset: int, expected: str | None
) -> None:
    """Bytes right beside a buffer and further off, on both sides."""
    step = launch("poke", "out", np.int64(offset))
    result = worker.run(Job(modules, (output("out", 100),), (step,)))
    assert result.damaged_canaries == ([expected] if expected else [])


def test_buffers_are_aligned(worker: Worker, modules: dict[str, bytes]) -> None:
    """Every buffer starts at a multiple of 1024 bytes, guarded or not, after odd sizes too."""
    buffers = (output("out", 24), Buffer("a", 7), Buffer("b", 1001, canary=True))
    result = worker.run(Job(modules, buffers, (launch("addresses", "out", "a", "b"),)))
    addresses = result.arrays["out"].view(np.uint64)
    assert (addresses % 1024 == 0).all()
    assert len(set(addresses.tolist())) == 3


def test_scalars_of_every_width_arrive(worker: Worker, modules: dict[str, bytes]) -> None:
    """Bit for bit, a signalling NaN included."""
    nan = np.uint32(0x7F812345).view(np.float32)
    values = (np.True_, np.int16(-2), np.int32(-3), np.int64(-(1 << 60)), nan, np.float64(-0.0))
    job = Job(modules, (output("out", 48),), (launch("scalars", "out", *values),))
    words = worker.run(job).arrays["out"].view(np.int64)
    assert words.tolist() == [1, -2, -3, -(1 << 60), 0x7F812345, -(1 << 63)]


@pytest.mark.parametrize("cluster", [None, 2])
def test_a_tensor_map_arrives_by_value(
    worker: Worker, modules: dict[str, bytes], cluster: int | None
) -> None:
    """The driver's bytes are the model's, for where the buffer lies; other arguments stay in their places."""
    if int(worker.info().arch.strip("sm_a")) < 90:
        pytest.skip("tensor maps exist from sm_90 on")
    m = TensorMap("f16", (8, 16, 64), (2048, 128), (2, 8, 64), (1, 1, 1), swizzle="128B", l2="256")
    arguments = (MapArgument(m, "in", 256), "out", np.uint32(7))
    step = launch("map_words", *arguments, grid=2, cluster=cluster)
    found = worker.run(Job(modules, (Buffer("in", 1 << 15), output("out", 33 * 8)), (step,)))
    words = found.arrays["out"].view(np.uint64)
    address = int(words[0])
    assert address % 1024 == 256
    expected = dataclasses.replace(m, address=address).encode()
    assert words[:16].tobytes() == words[16:32].tobytes() == expected
    assert words[32] == 7


def test_a_scalar_of_the_wrong_width_is_refused(worker: Worker, modules: dict[str, bytes]) -> None:
    """Before anything runs: the message names kernel, index and both sizes."""
    job = Job(modules, (output("out", 4),), (launch("poke", "out", np.int32(0)),))
    with pytest.raises(UsageError, match=r"kernel poke, argument 1: .* 8 bytes, int32 has 4"):
        worker.run(job)
    assert still_works(worker, modules)


def test_an_unknown_kernel_is_told_with_the_nearest(worker: Worker, modules: dict[str, bytes]) -> None:
    """The legal names come from the cubin."""
    with pytest.raises(UsageError, match=r"unknown kernel 'spine'; legal: .*every_other") as caught:
        worker.run(Job(modules, (), (launch("spine"),)))
    assert "spin" in caught.value.hint


@pytest.mark.parametrize("shared", [1024, 100 << 10, 200 << 10])
def test_dynamic_shared_memory(worker: Worker, modules: dict[str, bytes], shared: int) -> None:
    """Up to the device's limit, which is above 48 KB."""
    if shared > worker.info().shared_bytes_per_block:
        pytest.skip(f"a block has at most {worker.info().shared_bytes_per_block} bytes here")
    step = launch("last_shared_word", "out", np.uint32(shared // 4), shared=shared)
    result = worker.run(Job(modules, (output("out", 4),), (step,)))
    assert result.arrays["out"].view(np.uint32).tolist() == [42]


def test_launches_of_one_kernel_with_different_shared_memory(
    worker: Worker, modules: dict[str, bytes]
) -> None:
    """What the smaller one asks for does not take anything from the larger one."""
    sides = tuple(
        (str(size), launch("last_shared_word", "out", np.uint32(size // 4), shared=size))
        for size in (90 << 10, 60 << 10, 16)
    )
    step = Timing("t", sides, samples=2, warmup_ms=1)
    result = worker.run(Job(modules, (output("out", 4),), (step,)))
    assert result.arrays["out"].view(np.uint32).tolist() == [42]
    assert all(len(each.milliseconds) == 2 for each in result.timings["t"].values())


def test_too_much_shared_memory_is_refused(worker: Worker, modules: dict[str, bytes]) -> None:
    """With the limit in the message."""
    limit = worker.info().shared_bytes_per_block
    step = launch("last_shared_word", "out", np.uint32(1), shared=limit + 16)
    with pytest.raises(UsageError, match=f"at most {limit} bytes"):
        worker.run(Job(modules, (output("out", 4),), (step,)))


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_clusters(worker: Worker, modules: dict[str, bytes], size: int) -> None:
    """Grids are counted in blocks; 16 is more than every chip must run."""
    if not re.match(r"sm_(9|1\d)", worker.info().arch):
        pytest.skip("clusters exist from sm_90 on")
    grid = 3 * size
    step = launch("cluster_ranks", "out", grid=grid, cluster=size)
    result = worker.run(Job(modules, (output("out", 8 * grid),), (step,)))
    ranks, counts = result.arrays["out"].view(np.uint32).reshape(grid, 2).T
    assert ranks.tolist() == [block % size for block in range(grid)]
    assert set(counts.tolist()) == {size}


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("trap", "CUDA_ERROR_(LAUNCH_FAILED|ILLEGAL_INSTRUCTION)"),
        ("wild", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    ],
)
def test_a_fault_is_told_and_the_next_job_runs(
    worker: Worker, modules: dict[str, bytes], kernel: str, expected: str
) -> None:
    """CUDA's name for it, and which kernel did it."""
    with pytest.raises(DeviceError, match=rf"{expected}: .* \(kernel {kernel}\)"):
        worker.run(Job(modules, (), (launch(kernel),)))
    assert still_works(worker, modules)


def test_a_kernel_that_spins_for_ever(worker: Worker, modules: dict[str, bytes]) -> None:
    """The time limit ends it, and the next job runs."""
    job = Job(modules, (Buffer("flag", 4),), (launch("spin", "flag"),))
    with pytest.raises(DeviceError, match="timed out after 2 s"):
        worker.run(job, timeout=2)
    assert still_works(worker, modules)


PARENT = """
import pickle, sys
from ptxlab.device.client import Worker
with Worker(timeout=100) as worker:
    print(worker._started()._process.pid, flush=True)
    worker.run(pickle.load(open(sys.argv[1], "rb")))
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_a_parent_that_ends_leaves_no_spinning_kernel_behind(
    modules: dict[str, bytes], tmp_path: Path, sent: signal.Signals
) -> None:
    """Interrupted, it kills the worker; killed, the worker sees that and ends by itself."""
    job = Job(modules, (Buffer("flag", 4),), (launch("spin", "flag"),))
    (tmp_path / "job").write_bytes(pickle.dumps(job))
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "job")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(1)  # the kernel spins by now
        assert parent.poll() is None
        parent.send_signal(sent)
    assert gone(pid)


def test_what_a_kernel_prints_stays_away_from_stdout(
    worker: Worker, modules: dict[str, bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    """It would break the one document on stdout."""
    worker.run(Job(modules, (), (launch("shout"),)))
    assert capfd.readouterr() == ("", "")


def test_a_damaged_cubin(worker: Worker, modules: dict[str, bytes]) -> None:
    """Bytes that are no cubin, one that ends too early (the driver crashes on it), a bare header."""
    whole = modules["m"]
    for cubin in (b"no cubin at all" * 20, b"", whole[: len(whole) // 2], whole[:-1], whole[:64]):
        with pytest.raises(ToolError, match="the cubin 'm' is"):
            worker.run(Job({"m": cubin}, (), ()))
    assert still_works(worker, modules)


def test_a_cubin_for_another_chip(worker: Worker) -> None:
    """Exit 3: something needed is not here."""
    other = "sm_80" if worker.info().arch.startswith(("sm_9", "sm_1")) else "sm_90a"
    cubin = build_cuda('extern "C" __global__ void k() {}', name="other.cu", arch=other).cubin
    with pytest.raises(MissingError, match="does not run on") as caught:
        worker.run(Job({"m": cubin}, (), (launch("k"),)))
    assert worker.info().arch in caught.value.hint


def timed(worker: Worker, modules: dict[str, bytes], buffers: int, timing: Timing) -> JobResult:
    """Run one timing over two buffers of so many bytes."""
    pair = (Buffer("in", buffers), Buffer("out", 4 << 20))
    return worker.run(Job(modules, pair, (timing,)), timeout=60)


def test_timing_tells_double_work_from_equal_work(worker: Worker, modules: dict[str, bytes]) -> None:
    """Two equal sides and one that does twice as much, interleaved."""
    once, twice = (launch("busy", "out", np.int32(rounds), grid=132, block=256) for rounds in (4000, 8000))
    sides = (("a", once), ("b", once), ("double", twice))
    samples = timed(worker, modules, 4, Timing("t", sides)).timings["t"]
    a, b, double = (samples[name] for name, _ in sides)
    assert compare(a.milliseconds, b.milliseconds).verdict == "indistinguishable"
    comparison = compare(double.milliseconds, a.milliseconds)
    assert comparison.verdict == "slower"
    assert comparison.ratio == pytest.approx(2, rel=0.05)


def test_a_sample_is_long_enough_and_carries_its_clock(worker: Worker, modules: dict[str, bytes]) -> None:
    """A call of a microsecond is repeated until a replay takes milliseconds."""
    side = launch("busy", "out", np.int32(10), grid=1, block=32)
    samples = timed(worker, modules, 4, Timing("t", (("tiny", side),))).timings["t"]["tiny"]
    assert len(samples.milliseconds) == 20
    assert samples.calls_per_sample > 100
    assert samples.calls_per_sample * median(samples.milliseconds) > 2
    assert len(samples.clock_mhz) == len(samples.power_w) == len(samples.throttle) == 20
    assert min(samples.clock_mhz) > 100
    assert len(samples.sm_mhz) == 20
    assert median(samples.sm_mhz) == pytest.approx(median(samples.clock_mhz), rel=0.2)
    assert min(samples.power_w) > 1
    assert (samples.baseline, samples.note) == ("", "")


def test_cold_is_slower_than_hot(worker: Worker, modules: dict[str, bytes]) -> None:
    """Half of the L2 is read: hot from the L2, cold from memory, four copies in turn."""
    nbytes = worker.info().l2_bytes // 2 // 16 * 16
    side = launch("read_all", "in", "out", np.uint32(nbytes // 16), grid=1024, block=1024)
    hot, cold = (
        worker.run(
            Job(
                modules,
                (Buffer("in", nbytes, copies=copies), Buffer("out", 4 << 20)),
                (Timing("t", (("read", side),), copies=copies),),
            ),
            timeout=60,
        ).timings["t"]["read"]
        for copies in (1, 4)
    )
    assert cold.calls_per_sample % 4 == 0
    assert median(cold.milliseconds) > 1.2 * median(hot.milliseconds)


DTYPES = {"f16": "<f2", "bf16": "<u2", "f32": "<f4"}


def encode(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return small integers in a dtype, where all of them are exact."""
    if dtype == "bf16":
        return (values.astype("<f4").view("<u4") >> 16).astype("<u2")
    return values.astype(DTYPES[dtype])


@pytest.mark.parametrize("library", [LT, TORCH])
@pytest.mark.parametrize("layout", ["tn", "tt", "nn", "nt"])
@pytest.mark.parametrize("types", sorted(LEGAL), ids="-".join)
def test_the_baseline_computes_our_product(
    worker: Worker, layout: str, types: tuple[str, str, str], library: str
) -> None:
    """Every layout and type, on integers whose product is exact; or a note where there is no cuBLAS."""
    m, n, k = 64, 48, 40
    dtype, accumulate, out = types
    rng = np.random.default_rng(7)
    a, b = rng.integers(-2, 3, (m, k)), rng.integers(-2, 3, (k, n))
    buffers = (
        matrix("a", encode(a if layout[0] == "t" else a.T, dtype)),
        matrix("b", encode(b.T if layout[1] == "n" else b, dtype)),
        output("c", m * n * np.dtype(DTYPES[out]).itemsize),
    )
    side = CublasGemm(m, n, k, dtype, accumulate, out, layout, "a", "b", "c", library=library)
    step = Timing("t", (("cublas", side),), samples=2, warmup_ms=1)
    result = worker.run(Job({}, buffers, (step,)), timeout=60)
    samples = result.timings["t"]["cublas"]
    if samples.note:
        assert samples.milliseconds == []
        pytest.skip(samples.note)
    assert re.match(r"cuBLAS.* \((nvmath-python|torch) ", samples.baseline)
    assert len(samples.milliseconds) == 2
    c = result.arrays["c"].view(DTYPES[out]).reshape(m, n)
    assert np.array_equal(c, encode(a @ b, out))


def matrix(name: str, values: np.ndarray) -> Buffer:
    """Return an input buffer with these values, row by row."""
    return Buffer(name, values.nbytes, np.ascontiguousarray(values))


def test_a_product_that_cublas_does_not_have_gets_a_note(worker: Worker) -> None:
    """The other sides of the timing are measured all the same."""
    buffers = tuple(Buffer(name, 2 * 16 * 16) for name in "abc")
    side = CublasGemm(16, 16, 16, "f16", "f32", "bf16", "tn", "a", "b", "c")
    step: Step = Timing("t", (("cublas", side),), samples=2, warmup_ms=1)
    samples: Samples = worker.run(Job({}, buffers, (step,)), timeout=60).timings["t"]["cublas"]
    assert samples.milliseconds == []
    assert "cuBLAS" in samples.note
    assert math.isclose(samples.calls_per_sample, 0)


def test_compute_sanitizer_wraps_the_worker(
    worker: Worker, modules: dict[str, bytes], tmp_path: Path
) -> None:
    """A job from a file, whose out-of-bounds write it finds."""
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("compute-sanitizer is not on PATH")
    worker.info()
    jobs, results = tmp_path / "jobs", tmp_path / "results"
    step = launch("poke", "out", np.int64(1 << 20))
    jobs.write_bytes(pickle.dumps([Job(modules, (Buffer("out", 16),), (step,))]))
    done = subprocess.run(
        [sanitizer, "--error-exitcode", "9", *wrapped_command(jobs, results, 0)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "not supported" in done.stdout:
        pytest.skip("compute-sanitizer does not work here: " + done.stdout.splitlines()[-1])
    assert done.returncode != 0
    assert "Invalid __global__ write of size 1 bytes" in done.stdout
