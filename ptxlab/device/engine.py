"""Runs jobs on a CUDA device. Loaded by the worker alone."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

from cuda.bindings import driver
from cuda.core import Device, Kernel, LaunchConfig, ObjectCode, launch

from ptxlab.device import cublas, tensor_maps
from ptxlab.device.checks import (
    check_arguments,
    check_cubin,
    check_shape,
    grid_in_clusters,
    same_bits,
)
from ptxlab.device.clocks import Clocks, driver_version
from ptxlab.device.driver import CUDAError, checked, device_count, faults
from ptxlab.device.job import (
    Argument,
    ClusterLimits,
    CublasGemm,
    DeviceInfo,
    Job,
    JobResult,
    Launch,
    MapArgument,
    Progress,
    Report,
    Samples,
    Scalar,
    Timing,
)
from ptxlab.device.memory import Memory
from ptxlab.device.sm_clock import SmClock
from ptxlab.device.timing import Call, Timer
from ptxlab.errors import MissingError, ToolError, unknown_name

PORTABLE_CLUSTER = 8
"""Blocks of the largest cluster that runs on every chip with clusters (CUDA programming guide)."""

DEFAULT_SHARED_BYTES = 48 * 1024
"""Shared memory, static and dynamic, that a block gets without asking (CUDA programming guide)."""

Modules = Mapping[str, ObjectCode]


class CudaEngine:
    """Holds one device, one stream on it, and runs one job after the other.

    Raises:
        MissingError: there is no device with this index.

    """

    def __init__(self, index: int) -> None:
        count = device_count()
        if not 0 <= index < count:
            raise MissingError(
                f"no device {index}: there {'is' if count == 1 else 'are'} {count}, counted from 0",
                "ptxlab doctor lists what is here",
                code="no-device",
            )
        with faults("opening the device"):
            self._device = Device(index)
            self._device.set_current()
            self._stream = self._device.create_stream()
        self._name = self._device.name
        self._libraries: dict[str, cublas.Library | str] = {}

    def info(self) -> DeviceInfo:
        """Return what the device is."""
        with faults("asking the device what it is"):
            version = int(checked(driver.cuDriverGetVersion()))
            properties = self._device.properties
            return DeviceInfo(
                name=self._name,
                arch=self._arch,
                multiprocessors=properties.multiprocessor_count,
                l2_bytes=properties.l2_cache_size,
                shared_bytes_per_block=properties.max_shared_memory_per_block_optin,
                memory_bytes=int(checked(driver.cuMemGetInfo())[1]),
                driver=driver_version(),
                cuda_driver_version=f"{version // 1000}.{version % 1000 // 10}",
            )

    def run(self, job: Job, report: Report) -> JobResult:
        """Run one job (see worker.Engine)."""
        timings: dict[str, dict[str, Samples]] = {}
        clusters: dict[str, ClusterLimits] = {}
        modules = {name: self._load(name, cubin) for name, cubin in job.modules.items()}
        with Memory(job.buffers, self._stream) as memory:
            for step, following in itertools.zip_longest(job.steps, job.steps[1:]):
                if isinstance(step, Timing):
                    timings[step.name] = self._time(step, modules, memory, report)
                    continue
                if isinstance(step, CublasGemm):
                    self._library_once(step, memory)
                    continue
                if step.cluster:
                    clusters[step.kernel] = self._cluster_limits(step, modules)
                self._launch(step, modules, memory)
                if not (isinstance(following, Launch) and following.programmatic):
                    self._wait(step)  # so that a fault is told of the kernel that made it
            return JobResult(memory.download(), memory.damaged(), timings, clusters)

    @property
    def _arch(self) -> str:
        """The chip, with the suffix of its own features; those exist from sm_90 on."""
        major, minor = self._device.compute_capability
        return f"sm_{major}{minor}{'a' if major >= 9 else ''}"

    def _load(self, name: str, cubin: bytes) -> ObjectCode:
        """Load a cubin.

        Raises:
            MissingError: it was compiled for another chip.
            ToolError: it is damaged.

        """
        check_cubin(name, cubin)
        try:
            module = ObjectCode.from_cubin(cubin, name=name)
            checked(driver.cuLibraryGetModule(module.handle))  # loads it, which else waits
        except CUDAError as error:
            if "NO_BINARY_FOR_GPU" in str(error):
                raise MissingError(
                    f"the cubin '{name}' does not run on {self._name} ({self._arch})",
                    f"compile it for this chip: --arch {self._arch}",
                    code="wrong-chip",
                ) from error
            raise ToolError(f"the cubin '{name}' does not load: {error}", code="bad-cubin") from error
        return module

    def _launch(self, step: Launch, modules: Modules, memory: Memory) -> None:
        with faults(f"kernel {step.kernel}"):
            self._prepare(step, modules, memory).enqueue(self._stream, 0)

    def _wait(self, step: Launch) -> None:
        with faults(f"kernel {step.kernel}"):
            self._stream.sync()

    def _cluster_limits(self, step: Launch, modules: Modules) -> ClusterLimits:
        """Ask what fits: a cluster runs within one GPC, and which of those are whole differs by card."""
        kernel = self._kernel(modules[step.module], step.kernel)
        self._fit(kernel, step)
        config = _config(step)
        with faults(f"asking for the clusters of {step.kernel}"):
            return ClusterLimits(
                largest=kernel.occupancy.max_potential_cluster_size(config, stream=self._stream),
                active=kernel.occupancy.max_active_clusters(config, stream=self._stream),
            )

    def _time(self, timing: Timing, modules: Modules, memory: Memory, report: Report) -> dict[str, Samples]:
        """Measure the sides that can run; the others get a note."""
        calls: dict[str, Call] = {}
        samples: dict[str, Samples] = {}
        with faults(f"timing {timing.name}"):
            if timing.copies > 1:
                memory.replicate()
            for name, side in timing.sides:
                if isinstance(side, Launch):
                    calls[name] = self._prepare(side, modules, memory, timing.copies)
                    continue
                ways = self._library_calls(side, memory, timing.copies)
                if isinstance(ways, str):
                    samples[name] = Samples([], [], [], [], 0, note=ways)
                else:
                    report(Progress(f"choosing from {len(ways)} ways of {side.library}", 0, timing.samples))
                    calls[name] = self._timer.fastest(ways)
            return samples | self._timer.measure(timing, calls, report)

    def _prepare(self, step: Launch, modules: Modules, memory: Memory, copies: int = 1) -> Call:
        """Check a launch and return what puts it on a stream or into a graph, with each copy of its buffers.

        Raises:
            UsageError: there is no such module, kernel or buffer; an argument or a size is wrong.

        """
        if step.module not in modules:
            raise unknown_name("module", step.module, modules)
        kernel = self._kernel(modules[step.module], step.kernel)
        check_arguments(step, [parameter.size for parameter in kernel.arguments_info])
        self._fit(kernel, step)
        copies = min(copies, max(map(memory.copies, _buffers(step)), default=1))
        plain = [each for each in step.arguments if not isinstance(each, MapArgument)]
        if len(plain) < len(step.arguments):
            data = [[_bytes(each, memory, i) for each in step.arguments] for i in range(copies)]
            return Call(
                lambda stream, turn: tensor_maps.launch(stream, step, kernel, data[turn % copies]),
                copies=copies,
            )
        config = _config(step)
        values = [[_value(each, memory, i) for each in plain] for i in range(copies)]
        return Call(
            lambda stream, turn: launch(stream, config, kernel, *values[turn % copies]), copies=copies
        )

    def _fit(self, kernel: Kernel, step: Launch) -> None:
        """Check the sizes of a launch, and ask for what is not given without asking.

        Raises:
            UsageError: a size is more than this kernel can have on this device.

        """
        static = kernel.attributes.shared_size_bytes
        most = self._device.properties.max_shared_memory_per_block_optin - static
        threads = kernel.attributes.max_threads_per_block
        check_shape(step, threads=threads, shared_bytes=most)
        attribute = driver.CUfunction_attribute
        if static + step.shared_bytes > DEFAULT_SHARED_BYTES:
            # the most, since another launch of this kernel may want more than this one
            self._set(kernel, attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most)
        if step.cluster:
            wide = math.prod(step.cluster) > PORTABLE_CLUSTER and not step.portable
            self._set(kernel, attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, int(wide))

    def _set(self, kernel: Kernel, attribute: driver.CUfunction_attribute, value: int) -> None:
        device = driver.CUdevice(self._device.device_id)
        checked(driver.cuKernelSetAttribute(attribute, value, kernel.handle, device))

    def _kernel(self, module: ObjectCode, name: str) -> Kernel:
        """Return a kernel of a module by its extern "C" name."""
        count = checked(driver.cuLibraryGetKernelCount(module.handle))
        handles = checked(driver.cuLibraryEnumerateKernels(count, module.handle)) if count else []
        names = [checked(driver.cuKernelGetName(handle)).decode() for handle in handles]
        if name not in names:
            raise unknown_name("kernel", name, names)
        return module.get_kernel(name)

    def _library_calls(self, gemm: CublasGemm, memory: Memory, copies: int = 1) -> list[Call] | str:
        """Return the ways that a library offers, each called once on the first copy, or why there is none."""
        library = self._library(gemm.library)
        if isinstance(library, str):
            return library
        names = (gemm.a, gemm.b, gemm.c)
        places = [cublas.Places(*(memory.address(name, i) for name in names)) for i in range(copies)]
        if gemm.bias:
            places = [each._replace(bias=memory.address(gemm.bias, 0)) for each in places]
        ways = cublas.prepare(library, gemm, places)
        if isinstance(ways, str):
            return ways
        return [Call(partial(_on_its_stream, way), library.name, copies) for way in ways]

    def _library_once(self, gemm: CublasGemm, memory: Memory) -> None:
        with faults(f"a call of {gemm.library}"):
            calls = self._library_calls(gemm, memory)  # which tries all of them
            if not isinstance(calls, str):
                calls[0].enqueue(self._stream, 0)  # so that its result is the one that stays
            self._stream.sync()

    def _library(self, which: str) -> cublas.Library | str:
        if which not in self._libraries:
            self._libraries[which] = cublas.load(which, self._device, self._stream)
        return self._libraries[which]

    @cached_property
    def _timer(self) -> Timer:
        clocks = sm_clock = None
        with contextlib.suppress(LookupError):
            clocks = Clocks(self._device.pci_bus_id)
        with contextlib.suppress(CUDAError):  # a driver without a compiler
            sm_clock = SmClock(self._device, self._stream)
        return Timer(self._device, self._stream, clocks, sm_clock)


def _on_its_stream(way: list[cublas.Enqueue], _: object, turn: int) -> None:
    """Put a library's product on the stream that it is bound to, which is ours."""
    way[turn % len(way)]()


def _buffers(step: Launch) -> list[str]:
    """Return the names of the buffers that a launch works on."""
    named = [each.buffer if isinstance(each, MapArgument) else each for each in step.arguments]
    return [each for each in named if isinstance(each, str)]


def _bytes(argument: Argument, memory: Memory, copy: int) -> bytes:
    """Return an argument as the kernel gets it, on that copy of the buffers."""
    if isinstance(argument, MapArgument):
        return tensor_maps.encode(argument.map, memory.address(argument.buffer, copy) + argument.offset)
    if isinstance(argument, str):
        return memory.address(argument, copy).to_bytes(8, "little")
    return argument.tobytes()


def _value(argument: str | Scalar, memory: Memory, copy: int) -> Any:
    """Return an argument as cuda.core takes it."""
    return memory.address(argument, copy) if isinstance(argument, str) else same_bits(argument)


def _config(step: Launch) -> LaunchConfig:
    return LaunchConfig(
        grid=grid_in_clusters(step),
        cluster=step.cluster,
        block=step.block,
        shmem_size=step.shared_bytes,
        programmatic_stream_serialization=step.programmatic,
    )
