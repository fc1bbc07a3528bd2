"""The baselines of every GEMM: cuBLASLt through nvmath-python, and torch. Loaded by the worker alone.

Both are optional. What cannot be done is a sentence, not an error: a stage is then timed without it.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ptxlab.device.job import LT, TORCH, CublasGemm

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
    ("tf32", "f32", "f32"),
    ("s8", "s32", "s32"),
    ("e4m3", "f32", "bf16"),
    ("e4m3", "f32", "f16"),
    ("e4m3", "f32", "f32"),
}
"""(operands, accumulation, result) that cuBLAS takes (cuBLAS documentation, "cublasLtMatmul")."""

DATA_TYPES = {"f32": 0, "tf32": 0, "f16": 2, "s8": 3, "s32": 10, "bf16": 14, "e4m3": 28}
"""cudaDataType_t (CUDA's library_types.h)."""

COMPUTE_TYPES = {"f16": 64, "f32": 68, "s32": 72}
FAST_TF32 = 77
"""cublasComputeType_t (cuBLAS documentation)."""

FLOAT8 = ("e4m3",)

EPILOGUES = {"none": 0, "relu": 2, "gelu": 32}
"""cublasLtEpilogue_t by activation; with a bias 4 more. The bias has an element for each row of the library's
column-major C, which is each column of ours, and its type (cuBLAS documentation, "cublasLtEpilogue_t").
"""

TORCH_TYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "tf32": "float32",
    "f32": "float32",
    "e4m3": "float8_e4m3fn",
    "s8": "int8",
    "s32": "int32",
}

CANDIDATES = 12
"""Algorithms that cuBLASLt's heuristics are asked for; the fastest of them is the baseline."""


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
    bias: int = 0  # the same for every call


Enqueue = Callable[[], None]
"""Puts one product on the stream."""


class Library(Protocol):
    """A way to cuBLAS, bound to one stream.

    Attributes:
        name: library and version, as a record names them.
        errors: what it raises.

    """

    name: str
    errors: tuple[type[Exception], ...]

    def candidates(self, gemm: CublasGemm, places: Sequence[Places]) -> list[list[Enqueue]]:
        """Return the ways to compute a product, the best guess first; each once for every place."""
        ...


class CublasLt:
    """cublasLtMatmul through the bindings of nvmath-python, with each algorithm that its heuristics name."""

    def __init__(self, device: Device, stream: Stream) -> None:
        from cuda.bindings import driver
        from nvmath.bindings import cublasLt

        from ptxlab.device.driver import checked

        del device  # it is the current one
        self._lt = cublasLt
        self._handle = cublasLt.create()
        self._stream = int(stream.handle)
        self._workspace = int(checked(driver.cuMemAlloc(WORKSPACE_BYTES)))  # as long as the worker lives
        major, rest = divmod(cublasLt.get_version(), 10000)
        version = f"{major}.{rest // 100}.{rest % 100}"
        self.name = f"cuBLASLt {version} (nvmath-python {importlib.metadata.version('nvmath-python')})"
        self.errors: tuple[type[Exception], ...] = (cublasLt.cuBLASLtError,)

    def candidates(self, gemm: CublasGemm, places: Sequence[Places]) -> list[list[Enqueue]]:
        """See Library."""
        lt = self._lt
        scale = np.dtype({"f16": np.float16, "s32": np.int32}.get(gemm.accumulate, np.float32))
        compute = FAST_TF32 if gemm.dtype == "tf32" else COMPUTE_TYPES[gemm.accumulate]
        operation = lt.matmul_desc_create(compute, DATA_TYPES[gemm.accumulate])
        order = column_major(gemm)
        self._set(operation, "TRANSA", np.int32(order.transpose_b))
        self._set(operation, "TRANSB", np.int32(order.transpose_a))
        if gemm.dtype in FLOAT8:
            self._set(operation, "FAST_ACCUM", np.int8(not gemm.promoted))
        if gemm.bias or gemm.activation != "none":
            self._set(operation, "EPILOGUE", np.uint32(EPILOGUES[gemm.activation] + (4 if gemm.bias else 0)))
        if gemm.bias:
            self._set(operation, "BIAS_POINTER", np.uint64(places[0].bias))
            self._set(operation, "BIAS_DATA_TYPE", np.int32(DATA_TYPES[gemm.out]))
        layouts = [lt.matrix_layout_create(*each) for each in _layouts(gemm, order)]
        scales = np.array([gemm.alpha, gemm.beta], scale)
        found = self._found(operation, layouts)

        def product(place: Places, algorithm: int) -> None:
            alpha, beta = (scales[i:].ctypes.data for i in range(2))
            left, right, result = layouts
            self._lt.matmul(
                self._handle, operation, alpha, place.b, left, place.a, right, beta, place.c, result,
                place.c, result, found["algo"][algorithm:].ctypes.data, self._workspace,
                WORKSPACE_BYTES, self._stream,
            )  # fmt: skip

        return [[partial(product, place, i) for place in places] for i in range(len(found))]

    def _set(self, operation: int, attribute: str, value: np.generic) -> None:
        stored = np.array([value])
        which = self._lt.MatmulDescAttribute[attribute]
        self._lt.matmul_desc_set_attribute(operation, which, stored.ctypes.data, stored.nbytes)

    def _found(self, operation: int, layouts: Sequence[int]) -> NDArray[np.void]:
        """Return the algorithms that the heuristics name for a product, the best guess first."""
        lt = self._lt
        wish, room = lt.matmul_preference_create(), np.array([WORKSPACE_BYTES], np.uint64)
        attribute = lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES
        lt.matmul_preference_set_attribute(wish, attribute, room.ctypes.data, room.nbytes)
        results = np.zeros(CANDIDATES, lt.matmul_heuristic_result_dtype)
        count = np.zeros(1, np.int32)
        left, right, result = layouts
        lt.matmul_algo_get_heuristic(
            *(self._handle, operation, left, right, result, result, wish),
            *(CANDIDATES, results.ctypes.data, count.ctypes.data),
        )
        lt.matmul_preference_destroy(wish)
        found: NDArray[np.void] = results[: count[0]][results["state"][: count[0]] == 0]
        return found


def _layouts(gemm: CublasGemm, order: ColumnMajor) -> list[tuple[int, int, int, int]]:
    """Return type, rows, columns and leading dimension of B', A' and C' as they are stored."""
    operand, result = DATA_TYPES[gemm.dtype], DATA_TYPES[gemm.out]
    left = (gemm.k, gemm.n) if order.transpose_b else (gemm.n, gemm.k)
    right = (gemm.m, gemm.k) if order.transpose_a else (gemm.k, gemm.m)
    return [
        (operand, *left, order.ld_b),
        (operand, *right, order.ld_a),
        (result, gemm.n, gemm.m, order.ld_c),
    ]


class TorchCublas:
    """torch.mm and torch.addmm on our memory and our stream."""

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

    def candidates(self, gemm: CublasGemm, places: Sequence[Places]) -> list[list[Enqueue]]:
        """See Library: torch has one way."""
        return [[self._product(gemm, each) for each in places]]

    def _product(self, gemm: CublasGemm, places: Places) -> Enqueue:
        m, n, k = gemm.m, gemm.n, gemm.k
        left = self._matrix(places.a, gemm.dtype, m, k, transposed=gemm.layout[0] == "n")
        right = self._matrix(places.b, gemm.dtype, k, n, transposed=gemm.layout[1] == "n")
        result = self._matrix(places.c, gemm.out, m, n, transposed=False)
        if left.dtype.itemsize == 1:
            return self._of_bytes(gemm, left, right, result)
        options = {} if result.dtype == left.dtype else {"out_dtype": result.dtype}
        if gemm.activation != "none" or (gemm.bias and gemm.beta):
            raise RuntimeError("no one call of torch ends with this activation, or adds a bias beside C")
        added, beta = result, gemm.beta
        if gemm.bias:
            added, beta = self._matrix(places.bias, gemm.out, 1, n, transposed=False)[0], 1.0

        def enqueue() -> None:
            self._switches.allow_fp16_accumulation = gemm.accumulate == "f16"
            self._switches.allow_tf32 = gemm.dtype == "tf32"
            with self._torch.cuda.stream(self._stream):
                if (gemm.alpha, beta) == (1, 0):
                    self._torch.mm(left, right, out=result, **options)
                else:
                    scales = {"alpha": gemm.alpha, "beta": beta}
                    self._torch.addmm(added, left, right, out=result, **scales, **options)

        return enqueue

    def _of_bytes(self, gemm: CublasGemm, left: Any, right: Any, result: Any) -> Enqueue:
        """Return the product of 8-bit operands, for which torch has functions of their own."""
        if (gemm.alpha, gemm.beta, gemm.bias, gemm.activation) != (1, 0, "", "none"):
            raise RuntimeError("torch multiplies 8-bit types alone: no factors, bias or activation")
        if gemm.dtype == "s8":
            multiply = partial(self._torch._int_mm, left, right, out=result)  # noqa: SLF001 - has no other name
        else:
            one = self._torch.ones((), device=left.device)
            options = {"out_dtype": result.dtype, "use_fast_accum": not gemm.promoted, "out": result}
            multiply = partial(self._torch._scaled_mm, left, right, scale_a=one, scale_b=one, **options)  # noqa: SLF001

        def enqueue() -> None:
            with self._torch.cuda.stream(self._stream):
                multiply()

        return enqueue

    def _matrix(self, address: int, dtype: str, rows: int, columns: int, *, transposed: bool) -> Any:
        """Return our memory as a tensor; ``transposed`` says that its columns are contiguous."""
        kind = getattr(self._torch, TORCH_TYPES[dtype])
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


LIBRARIES: dict[str, Callable[[Device, Stream], Library]] = {LT: CublasLt, TORCH: TorchCublas}


def load(which: str, device: Device, stream: Stream) -> Library | str:
    """Return the library (LT or TORCH), or why it is not here."""
    try:
        return LIBRARIES[which](device, stream)
    except Exception as error:  # noqa: BLE001 - whatever the loaders of its parts raise, it is not here
        reason = str(error).partition("\n")[0] or type(error).__name__
        return f"no {which} here ({reason})" + (f"; {INSTALL}" if which == LT else "")


def prepare(library: Library, gemm: CublasGemm, places: Sequence[Places]) -> list[list[Enqueue]] | str:
    """Return the ways to compute the product that pass a trial, each once for every place.

    Where the library cannot compute it, that is the answer.
    """
    types = (gemm.dtype, gemm.accumulate, gemm.out)
    if types not in LEGAL:
        legal = ", ".join("/".join(each) for each in sorted(LEGAL))
        return f"cuBLAS has no {'/'.join(types)} (operands/sums/result); legal: {legal}"
    sound, failures = [], ["its heuristics name no algorithm"]
    try:
        for enqueues in library.candidates(gemm, places):
            try:
                enqueues[0]()
                sound.append(enqueues)
            except library.errors as error:
                failures.append(_first_line(error))
    except library.errors as error:
        failures.append(_first_line(error))
    return sound or f"{library.name}: {failures[-1]}"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
