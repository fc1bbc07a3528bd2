"""What is checked without a device: cubins, arguments, shapes, canaries, layouts of the baseline."""

from __future__ import annotations

import ctypes
import dataclasses
import re
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ptxlab.device import canary, presence
from ptxlab.device.checks import (
    check_arguments,
    check_cubin,
    check_shape,
    grid_in_clusters,
    same_bits,
)
from ptxlab.device.clocks import throttle_text
from ptxlab.device.cublas import LEGAL, CublasLt, Library, Places, column_major, prepare
from ptxlab.device.job import CublasGemm, Dim3, Launch, MapArgument, Scalar
from ptxlab.errors import ToolError, UsageError
from ptxlab.isa.tensor_map import TensorMap


def launch(
    *arguments: Any,
    grid: Dim3 = (1, 1, 1),
    block: Dim3 = (1, 1, 1),
    cluster: Dim3 | None = None,
    shared: int = 0,
) -> Launch:
    """Return a launch of kernel k."""
    return Launch("m", "k", grid, block, arguments, shared, cluster)


def test_arguments_of_the_right_sizes_pass() -> None:
    """A pointer has eight bytes; every numpy scalar its own."""
    check_arguments(launch("a", np.int32(1), np.float64(2), np.True_, np.float16(3)), [8, 4, 8, 1, 2])
    check_arguments(launch(), [])


def test_a_tensor_map_has_128_bytes() -> None:
    """Whatever the kernel declares for it must have as many."""
    m = MapArgument(TensorMap("f16", (8, 8), (16,), (8, 8), (1, 1)), "a")
    check_arguments(launch(m, "a"), [128, 8])
    with pytest.raises(UsageError, match="the parameter has 64 bytes, a tensor map has 128"):
        check_arguments(launch(m), [64])


@pytest.mark.parametrize(
    ("arguments", "sizes", "message"),
    [
        (("a",), [], "kernel k has 0 parameters; 1 given"),
        (("a",), [8, 4], "kernel k has 2 parameters; 1 given"),
        (("a", np.int64(1)), [8, 4], "kernel k, argument 1: the parameter has 4 bytes, int64 has 8"),
        ((np.int32(1),), [8], "kernel k, argument 0: the parameter has 8 bytes, int32 has 4"),
        (("a",), [4], "kernel k, argument 0: the parameter has 4 bytes, a buffer's pointer has 8"),
        ((3,), [4], "kernel k, argument 0: 3 is a int; legal: a buffer's name, or a numpy scalar"),
        ((2.0,), [8], "kernel k, argument 0: 2.0 is a float; legal"),
    ],
)
def test_arguments_of_the_wrong_sizes_are_refused(
    arguments: tuple[str | Scalar, ...], sizes: list[int], message: str
) -> None:
    """With the kernel, the index, what is expected and what was given."""
    with pytest.raises(UsageError, match=re.escape(message)):
        check_arguments(launch(*arguments), sizes)


scalars = st.one_of(
    st.integers(-(2**31), 2**31 - 1).map(np.int32),
    st.integers(0, 2**64 - 1).map(np.uint64),
    st.integers(-128, 127).map(np.int8),
    st.booleans().map(np.bool_),
    st.integers(0, 2**32 - 1).map(lambda bits: np.uint32(bits).view(np.float32)),
    st.integers(0, 2**16 - 1).map(lambda bits: np.uint16(bits).view(np.float16)),
)


@given(scalars)
def test_a_scalar_is_passed_bit_for_bit(value: Scalar) -> None:
    """Every NaN keeps its bits, which a conversion would not."""
    bits = same_bits(value)
    assert bits.dtype.kind == "u"
    assert bits.tobytes() == value.tobytes()


def test_a_scalar_of_sixteen_bytes_is_refused() -> None:
    """There is no integer to carry it."""
    with pytest.raises(UsageError, match=r"16 bytes \(complex128\)"):
        same_bits(np.complex128(1))


@given(*[st.tuples(*[st.integers(1, 9)] * 3)] * 2)
def test_grids_are_counted_in_blocks(clusters: Dim3, cluster: Dim3) -> None:
    """The driver counts clusters."""
    x, y, z = (count * size for count, size in zip(clusters, cluster, strict=True))
    assert grid_in_clusters(launch(grid=(x, y, z), cluster=cluster)) == clusters
    assert grid_in_clusters(launch(grid=(x, y, z))) == (x, y, z)


def test_a_grid_that_is_no_multiple_of_the_cluster_is_refused() -> None:
    """Both are shown."""
    with pytest.raises(UsageError, match=r"the grid 7x2x1 .* no multiple of the cluster 2x1x1"):
        grid_in_clusters(launch(grid=(7, 2, 1), cluster=(2, 1, 1)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (launch(grid=(0, 1, 1)), "the grid is 0x1x1; each is at least 1"),
        (launch(block=(32, -1, 1)), "the block is 32x-1x1; each is at least 1"),
        (launch(cluster=(1, 1, 0)), "the cluster is 1x1x0; each is at least 1"),
        (launch(block=(32, 16, 2)), "a block has at most 512 threads; 32x16x2 are 1024"),
        (launch(shared=1001), "a block has at most 1000 bytes of dynamic shared memory"),
    ],
)
def test_shapes_that_cannot_run_are_refused(wrong: Launch, message: str) -> None:
    """With the limit."""
    with pytest.raises(UsageError, match=re.escape(message)):
        check_shape(wrong, threads=512, shared_bytes=1000)


def test_shapes_up_to_the_limits_pass() -> None:
    """The limits themselves are legal."""
    check_shape(launch(block=(512, 1, 1), shared=1000, cluster=(2, 2, 2)), threads=512, shared_bytes=1000)


def elf(*sections: tuple[int, bytes]) -> bytes:
    """Return an ELF file for CUDA with sections of these types and contents, and one segment."""
    body, table = b"", b""
    for kind, content in sections:
        table += struct.pack("<4xI16xQQ24x", kind, 64 + len(body), len(content))
        body += b"" if kind == 8 else content
    segments = 64 + len(body) + len(table)
    header = struct.pack(
        "<4s14xH12xQQ6xHHHH2x", b"\x7fELF", 190, segments, 64 + len(body), 56, 1, 64, len(sections)
    )
    return header + body + table + bytes(56)


contents = st.tuples(st.sampled_from([1, 8]), st.binary(max_size=40))


@given(st.lists(contents, min_size=1, max_size=5), st.data())
def test_a_cubin_that_ends_too_early_is_damaged(
    sections: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    """Wherever it is cut; the driver crashes on such a one."""
    whole = elf(*sections)
    check_cubin("m", whole)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ToolError, match=r"the cubin 'm' is (damaged|no cubin)"):
        check_cubin("m", whole[:cut])


@pytest.mark.parametrize("other", [b"", b"text", b".version 9.0", elf()[:18] + b"\x3e\x00" + elf()[20:]])
def test_what_is_no_cubin_is_refused(other: bytes) -> None:
    """Nothing, text, PTX, and an ELF file for another machine."""
    with pytest.raises(ToolError, match="the cubin 'm' is no cubin") as caught:
        check_cubin("m", other)
    assert caught.value.code == "bad-cubin"


def zones() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return both zones as they are while nothing has been written there."""
    return canary.pattern(), canary.pattern()


def test_intact_canaries_are_no_damage() -> None:
    """The pattern itself."""
    assert canary.damage("c", *zones()) is None


def test_damage_is_counted_and_its_place_told() -> None:
    """The distance is from the buffer's own first or last byte."""
    before, after = zones()
    before[-3:] ^= 0xFF
    assert canary.damage("c", before, canary.pattern()) == "c: 3 bytes before its start from -3"
    after[16] ^= 1
    after[900] ^= 1
    assert canary.damage("c", canary.pattern(), after) == "c: 2 bytes past its end from +16"
    both = canary.damage("c", before, after)
    assert both == "c: 3 bytes before its start from -3 and 2 bytes past its end from +16"


@given(st.integers(0, 255), st.integers(0, canary.ZONE - 2))
def test_no_constant_fill_passes_for_the_pattern(value: int, start: int) -> None:
    """Two bytes that are written alike always show."""
    after = canary.pattern()
    after[start : start + 2] = value
    assert canary.damage("c", canary.pattern(), after) is not None


def test_throttle_reasons_have_names() -> None:
    """And a bit that is not known is shown as it is."""
    assert throttle_text(0) == ""
    assert throttle_text(0x4) == "sw_power_cap"
    assert throttle_text(0x4 | 0x20) == "sw_power_cap+sw_thermal_slowdown"
    assert throttle_text(0x1000) == "0x1000"


@pytest.mark.parametrize("layout", ["tn", "tt", "nn", "nt"])
def test_a_column_major_library_computes_our_row_major_product(layout: str) -> None:
    """Its arguments are applied in numpy to the memory as it lies."""
    m, n, k = 3, 4, 5
    rng = np.random.default_rng(3)
    a, b = rng.integers(-9, 9, (m, k)), rng.integers(-9, 9, (k, n))
    memory_a = (a if layout[0] == "t" else a.T).ravel()
    memory_b = (b.T if layout[1] == "n" else b).ravel()
    order = column_major(CublasGemm(m, n, k, "f16", "f32", "f16", layout, "a", "b", "c"))
    first = memory_b.reshape(-1, order.ld_b).T  # a column-major matrix: its columns are ld apart
    second = memory_a.reshape(-1, order.ld_a).T
    product = (first.T if order.transpose_b else first) @ (second.T if order.transpose_a else second)
    memory_c = product.T.ravel()  # stored column by column
    assert np.array_equal(memory_c.reshape(m, order.ld_c), a @ b)


class Recorder:
    """A library that notes what it is asked for, and can fail."""

    name = "cuBLAS 1.2.3 (recorder)"
    errors: tuple[type[Exception], ...] = (ArithmeticError,)

    def __init__(self, *, fail: tuple[int, ...] = ()) -> None:
        self.fail = fail
        self.runs: list[tuple[int, Places]] = []

    def candidates(self, gemm: CublasGemm, places: Sequence[Places]) -> list[list[Callable[[], None]]]:
        """Return two ways, each of which notes that it ran, and where."""
        del gemm
        return [[partial(self._enqueue, way, place) for place in places] for way in range(2)]

    def _enqueue(self, way: int, place: Places) -> None:
        if way in self.fail:
            raise ArithmeticError("status 15\nmore of it")
        self.runs.append((way, place))


def gemm(types: tuple[str, str, str]) -> CublasGemm:
    """Return a small product of these types."""
    return CublasGemm(8, 8, 8, *types, "tn", "a", "b", "c")


@pytest.mark.parametrize("types", sorted(LEGAL))
def test_a_legal_product_is_tried_once_before_it_is_timed(types: tuple[str, str, str]) -> None:
    """Each way to do it; what cannot be computed shows here, not in the middle of a graph."""
    library, places = Recorder(), [Places(1, 2, 3), Places(4, 5, 6)]
    ways = prepare(library, gemm(types), places)
    assert not isinstance(ways, str)
    assert library.runs == [(0, places[0]), (1, places[0])]
    ways[1][1]()
    assert library.runs[2:] == [(1, places[1])]


def test_a_way_that_fails_is_left_out() -> None:
    """The heuristics may name an algorithm that this chip refuses."""
    ways = prepare(Recorder(fail=(0,)), gemm(("f16", "f32", "f32")), [Places(1, 2, 3)])
    assert not isinstance(ways, str)
    assert len(ways) == 1


def test_a_product_that_cublas_does_not_have_is_a_sentence() -> None:
    """It names the legal ones, and nothing runs."""
    library: Library = Recorder()
    note = prepare(library, gemm(("bf16", "f16", "f16")), [Places(1, 2, 3)])
    assert note == (
        "cuBLAS has no bf16/f16/f16 (operands/sums/result); legal: "
        "bf16/f32/bf16, bf16/f32/f32, e4m3/f32/bf16, e4m3/f32/f16, e4m3/f32/f32, f16/f16/f16, f16/f32/f16, "
        "f16/f32/f32, s8/s32/s32, tf32/f32/f32"
    )


def test_a_library_that_fails_is_a_sentence() -> None:
    """Its own first line."""
    note = prepare(Recorder(fail=(0, 1)), gemm(("f16", "f32", "f32")), [Places(1, 2, 3)])
    assert note == "cuBLAS 1.2.3 (recorder): status 15"


def test_presence_asks_for_the_driver_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its library there is none; with something that loads there is one."""
    monkeypatch.setattr(presence, "DRIVER_LIBRARY", "libno-such-driver.so.1")
    assert not presence.has_driver()
    monkeypatch.setattr(presence, "DRIVER_LIBRARY", None)  # ctypes: this very program
    assert presence.has_driver()


class NumpyLt:
    """cublasLt as far as a product needs it: column-major matrices in the host's memory, two algorithms."""

    matmul_heuristic_result_dtype = np.dtype(
        [("algo", [("data_", "<u8", (8,))]), ("workspace_size", "<u8"), ("state", "<i4"), ("waves", "<f4")]
    )
    MatmulDescAttribute: ClassVar = {
        "TRANSA": 3,
        "TRANSB": 4,
        "EPILOGUE": 7,
        "BIAS_POINTER": 8,
        "BIAS_DATA_TYPE": 26,
    }

    class MatmulPreferenceAttribute:
        """The one that is used."""

        MAX_WORKSPACE_BYTES = 1

    def __init__(self) -> None:
        self.told: dict[int, int] = {}
        self.layouts: list[tuple[int, int, int, int]] = []
        self.used: list[int] = []

    def matmul_desc_create(self, compute: int, scale: int) -> int:
        """Return a handle."""
        assert (compute, scale) == (68, 0)
        return 1

    def matmul_desc_set_attribute(self, _: int, which: int, address: int, nbytes: int) -> None:
        """Keep what the product is told: transpositions, what follows it, where the bias lies."""
        self.told[which] = int.from_bytes(ctypes.string_at(address, nbytes), "little")

    def matrix_layout_create(self, *layout: int) -> int:
        """Keep type, rows, columns and leading dimension; return which one it is."""
        self.layouts.append(layout)  # type: ignore[arg-type]
        return len(self.layouts) - 1

    def matmul_preference_create(self) -> int:
        """Return a handle."""
        return 2

    def matmul_preference_set_attribute(self, *_: int) -> None:
        """The workspace does not matter here."""

    def matmul_preference_destroy(self, _: int) -> None:
        """Nothing to free."""

    def matmul_algo_get_heuristic(self, *arguments: int) -> None:
        """Name three algorithms, the second of which cannot be used."""
        results = (ctypes.c_char * (3 * self.matmul_heuristic_result_dtype.itemsize)).from_address(
            arguments[-2]
        )
        found = np.frombuffer(results, self.matmul_heuristic_result_dtype)
        found["algo"]["data_"][:, 0] = (7, 8, 9)
        found["state"] = (0, 15, 0)
        ctypes.c_int32.from_address(arguments[-1]).value = 3

    def matmul(self, *arguments: int) -> None:
        """D = alpha op(A) op(B) + beta C, a bias for each row of D where there is one, and relu."""
        _, _, alpha, a, a_of, b, b_of, beta, c, c_of, d, _, algorithm, *_ = arguments
        assert c == d
        self.used.append(ctypes.c_uint64.from_address(algorithm).value)
        left, right, result = (self._matrix(*each) for each in ((a, a_of), (b, b_of), (c, c_of)))
        left = left.T if self.told[3] else left
        right = right.T if self.told[4] else right
        factors = [ctypes.c_float.from_address(each).value for each in (alpha, beta)]
        result[:] = factors[0] * (left @ right) + factors[1] * result
        epilogue = self.told.get(7, 1)
        if epilogue & 4:
            assert self.told[26] == self.layouts[c_of][0]  # its type is that of C
            rows = (ctypes.c_uint16 * len(result)).from_address(self.told[8])
            result += np.frombuffer(rows, np.float16)[:, None]
        if epilogue & 2:
            np.maximum(result, 0, out=result)

    def _matrix(self, address: int, which: int) -> NDArray[np.float16]:
        kind, rows, columns, leading = self.layouts[which]
        assert kind == 2
        memory = (ctypes.c_uint16 * (leading * columns)).from_address(address)
        return np.frombuffer(memory, np.float16).reshape(columns, leading)[:, :rows].T


@pytest.mark.parametrize("epilogue", ["", "bias", "relu", "bias relu"])
@pytest.mark.parametrize("layout", ["tn", "tt", "nn", "nt"])
def test_cublaslt_is_given_our_matrices_as_they_lie(layout: str, epilogue: str) -> None:
    """Each algorithm that can be used computes our row-major product, factors and what follows included."""
    m, n, k = 3, 4, 5
    rng = np.random.default_rng(3)
    a, b, c = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((m, k), (k, n), (m, n)))
    stored_a = np.ascontiguousarray(a if layout[0] == "t" else a.T)
    stored_b = np.ascontiguousarray(b.T if layout[1] == "n" else b)
    bias = rng.integers(-4, 5, n).astype(np.float16)
    expected = 2 * (a @ b) - c + (bias if "bias" in epilogue else 0)
    expected = np.maximum(expected, 0) if "relu" in epilogue else expected
    library = object.__new__(CublasLt)
    lt = NumpyLt()
    vars(library).update(_lt=lt, _handle=0, _workspace=0, _stream=0)
    gemm = CublasGemm(m, n, k, "f16", "f32", "f16", layout, "a", "b", "c", alpha=2.0, beta=-1.0)
    activation = "relu" if "relu" in epilogue else "none"
    gemm = dataclasses.replace(gemm, bias="bias" if "bias" in epilogue else "", activation=activation)
    results = [c.copy() for _ in range(2)]
    inputs = stored_a.ctypes.data, stored_b.ctypes.data
    places = [Places(*inputs, each.ctypes.data, bias.ctypes.data) for each in results]
    ways = library.candidates(gemm, places)
    assert [len(way) for way in ways] == [2, 2]
    ways[0][0]()
    ways[1][1]()
    assert lt.used == [7, 9]
    assert all(np.array_equal(each, expected) for each in results)
