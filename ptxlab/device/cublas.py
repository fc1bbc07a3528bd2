"""The baseline of every GEMM: cuBLAS through nvmath-python or torch. Loaded by the worker alone.

Both are optional. What cannot be done is a sentence, not an error: a stage is then timed alone.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ptxlab.device.job import CublasGemm

if TYPE_CHECKING:
    from cuda.core import Device, Stream

INSTALL = 'pip install "ptxlab[cublas]" brings cuBLAS'

WORKSPACE_BYTES = 32 << 20
"""What cuBLAS recommends on Hopper (cuBLAS documentation, "cublasSetWorkspace")."""

LEGAL = {
    ("f16", "f16", "f16"),
    ("f16", "f32", "f16"),
    ("f16", "f32", "f32"),
    ("bf16", "f32", "bf16"),
    ("bf16", "f32", "f32"),
}
"""(operands, accumulation, result) that cublasGemmEx takes (cuBLAS documentation, its table)."""

DATA_TYPES = {"f32": 0, "f16": 2, "bf16": 14}
"""cudaDataType_t (CUDA's library_types.h)."""

COMPUTE_TYPES = {"f16": 64, "f32": 68}
"""cublasComputeType_t (cuBLAS documentation)."""

DEFAULT_ALGORITHM = -1
"""cublasGemmAlgo_t: let the library's heuristics choose."""


@dataclass(frozen=True)
class ColumnMajor:
    """The arguments with which a column-major library computes our row-major C.

    The library's first operand is our B and its second our A, since the column-major reading of
    row-major C (m x n) is its transpose: C' = B' x A', which is n x m.
    """

    transpose_b: bool
    transpose_a: bool
    ld_b: int
    ld_a: int
    ld_c: int


def column_major(gemm: CublasGemm) -> ColumnMajor:
    """Return those arguments for a layout in BLAS letters: A's t and B's n are K-contiguous."""
    a, b = gemm.layout[0], gemm.layout[1]
    return ColumnMajor(
        transpose_b=b == "n",  # K-contiguous B is column-major k x n; B' is its transpose
        transpose_a=a == "n",  # M-contiguous A is column-major m x k; A' is its transpose
        ld_b=gemm.k if b == "n" else gemm.n,
        ld_a=gemm.m if a == "n" else gemm.k,
        ld_c=gemm.n,
    )


class Places(NamedTuple):
    """The addresses of the matrices of one call."""

    a: int
    b: int
    c: int


class Library(Protocol):
    """A way to cuBLAS, bound to one stream.

    Attributes:
        name: library and version, as a record names them.
        errors: what it raises.

    """

    name: str
    errors: tuple[type[Exception], ...]

    def gemm(self, gemm: CublasGemm, places: Places) -> Callable[[], None]:
        """Return what puts the product of the matrices at these addresses on the stream."""
        ...


class NvmathCublas:
    """cublasGemmEx through the bindings of nvmath-python."""

    def __init__(self, device: Device, stream: Stream) -> None:
        from nvmath.bindings import cublas

        self._cublas = cublas
        self._handle = cublas.create()
        self._workspace = device.allocate(WORKSPACE_BYTES, stream=stream)
        cublas.set_stream(self._handle, int(stream.handle))  # first: it resets the workspace
        cublas.set_workspace(self._handle, int(self._workspace.handle), WORKSPACE_BYTES)
        major, rest = divmod(cublas.get_version(self._handle), 10000)
        version = f"{major}.{rest // 100}.{rest % 100}"
        self.name = f"cuBLAS {version} (nvmath-python {importlib.metadata.version('nvmath-python')})"
        self.errors: tuple[type[Exception], ...] = (cublas.cuBLASError,)

    def gemm(self, gemm: CublasGemm, places: Places) -> Callable[[], None]:
        """See Library."""
        order = column_major(gemm)
        operand, result = DATA_TYPES[gemm.dtype], DATA_TYPES[gemm.out]
        scales = np.array([gemm.alpha, gemm.beta], np.float16 if gemm.accumulate == "f16" else np.float32)

        def enqueue() -> None:
            alpha, beta = (scales[i:].ctypes.data for i in range(2))
            self._cublas.gemm_ex(
                self._handle, int(order.transpose_b), int(order.transpose_a),
                gemm.n, gemm.m, gemm.k, alpha, places.b, operand, order.ld_b, places.a, operand, order.ld_a,
                beta, places.c, result, order.ld_c, COMPUTE_TYPES[gemm.accumulate], DEFAULT_ALGORITHM,
            )  # fmt: skip

        return enqueue


class TorchCublas:
    """torch.mm on our memory and our stream."""

    def __init__(self, device: Device, stream: Stream) -> None:
        import torch

        if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 8) or not torch.version.cuda:
            raise RuntimeError(f"torch {torch.__version__} is no CUDA build of 2.8 or newer")
        self._torch = torch
        self._device = device.device_id
        self._stream = torch.cuda.ExternalStream(int(stream.handle), device=self._device)
        self._switches = torch.backends.cuda.matmul
        self._switches.allow_fp16_reduced_precision_reduction = False
        self._switches.allow_bf16_reduced_precision_reduction = False
        self.name = f"{_cublas_package()} (torch {torch.__version__})"
        self.errors: tuple[type[Exception], ...] = (RuntimeError,)

    def gemm(self, gemm: CublasGemm, places: Places) -> Callable[[], None]:
        """See Library."""
        m, n, k = gemm.m, gemm.n, gemm.k
        left = self._matrix(places.a, gemm.dtype, m, k, transposed=gemm.layout[0] == "n")
        right = self._matrix(places.b, gemm.dtype, k, n, transposed=gemm.layout[1] == "n")
        result = self._matrix(places.c, gemm.out, m, n, transposed=False)
        options = {} if gemm.out == gemm.dtype else {"out_dtype": result.dtype}

        def enqueue() -> None:
            self._switches.allow_fp16_accumulation = gemm.accumulate == "f16"
            with self._torch.cuda.stream(self._stream):
                if (gemm.alpha, gemm.beta) == (1, 0):
                    self._torch.mm(left, right, out=result, **options)
                else:
                    scales = {"alpha": gemm.alpha, "beta": gemm.beta}
                    self._torch.addmm(result, left, right, out=result, **scales, **options)

        return enqueue

    def _matrix(self, address: int, dtype: str, rows: int, columns: int, *, transposed: bool) -> Any:
        """Return our memory as a tensor; ``transposed`` says that its columns are contiguous."""
        names = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}
        kind = getattr(self._torch, names[dtype])
        shape = (columns, rows) if transposed else (rows, columns)
        memory = _CudaArray(address, rows * columns * kind.itemsize)
        tensor = self._torch.as_tensor(memory, device=f"cuda:{self._device}").view(kind).view(shape)
        return tensor.t() if transposed else tensor


class _CudaArray:
    """Bytes on the device, described as torch reads them (the CUDA array interface, version 3)."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def _cublas_package() -> str:
    """Return "cuBLAS" with the version of its pip package, which torch itself does not tell."""
    try:
        return f"cuBLAS {importlib.metadata.version('nvidia-cublas')}"
    except importlib.metadata.PackageNotFoundError:
        return "cuBLAS"


def load(device: Device, stream: Stream) -> Library | str:
    """Return the first library that works here, or why there is none."""
    reasons = []
    for kind in (NvmathCublas, TorchCublas):
        try:
            library: Library = kind(device, stream)
        except (ImportError, RuntimeError) as error:  # their loaders of libraries raise both
            reasons.append(str(error).partition("\n")[0])
        else:
            return library
    return f"no cuBLAS here ({'; '.join(reasons)}); {INSTALL}"


def prepare(library: Library, gemm: CublasGemm, places: Sequence[Places]) -> list[Callable[[], None]] | str:
    """Return what enqueues the product at each place, after one trial at the first.

    Where the library cannot compute it, that is the answer.
    """
    types = (gemm.dtype, gemm.accumulate, gemm.out)
    if types not in LEGAL:
        legal = ", ".join("/".join(each) for each in sorted(LEGAL))
        return f"cuBLAS has no {'/'.join(types)} (operands/sums/result); legal: {legal}"
    enqueues = [library.gemm(gemm, each) for each in places]
    try:
        enqueues[0]()
    except library.errors as error:
        return f"{library.name}: {str(error).partition(chr(10))[0]}"
    return enqueues
