"""The generated unit: messages name the real file and line, and headers are included as the file says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ptxlab.errors import ToolError, UsageError
from ptxlab.experiments import ahead
from ptxlab.experiments.base import Case, Experiment, Macros
from ptxlab.experiments.unit import submitted, unit_source
from ptxlab.toolchain.build import Build, build_cuda
from ptxlab.toolchain.messages import CompileError

KERNEL = 'extern "C" __global__ void KERNEL(int *p) { *p = VALUE; }\n'
VARIANTS: dict[str, Macros] = {"k1": {"VALUE": 1}, "k2": {"VALUE": 2}}


def build(folder: Path, text: str, variants: dict[str, Macros] | None = None) -> Build:
    """Compile a kernel.cu with this text."""
    kernel = folder / "kernel.cu"
    kernel.write_text(text)
    return build_cuda(
        unit_source(kernel, variants or VARIANTS), name=str(kernel), arch="sm_90a", include_dirs=(folder,)
    )


class Broken(Experiment):
    """One that cannot say what its kernel is."""

    name = "broken"

    def macros(self, case: Case) -> Macros:
        """Ask for an option that there is not."""
        return {"VALUE": case.missing}


def test_what_goes_wrong_before_the_compiler_shows_in_the_future(tmp_path: Path) -> None:
    """So that other units, which are compiled beside it, go on: a missing file, a fault of the experiment."""
    broken = Broken()
    broken.folder, broken.file = tmp_path, tmp_path / "stage.py"
    with ahead.pool(1) as pool:
        missing = submitted(pool, broken, [broken.case("sm_90a")])
        broken.source.write_text(KERNEL)
        faulty = submitted(pool, broken, [broken.case("sm_90a")])
    with pytest.raises(UsageError, match=r"kernel\.cu does not exist"):
        missing.result(timeout=0)
    with pytest.raises(ToolError, match=f"{re.escape(str(broken.file))}.*AttributeError: missing"):
        faulty.result(timeout=0)


def failure(folder: Path, text: str) -> str:
    """Return the message of a kernel.cu that does not compile."""
    with pytest.raises(CompileError) as caught:
        build(folder, text)
    return caught.value.message


def test_every_variant_is_a_kernel_with_its_own_macros(tmp_path: Path) -> None:
    """Line information names the lines of kernel.cu."""
    made = build(tmp_path, "\n" + KERNEL)
    assert all(f".visible .entry {name}(" in made.ptx for name in VARIANTS)
    assert f'.file\t1 "{tmp_path}/kernel.cu"' in made.ptx
    assert ".loc\t1 2 " in made.ptx


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\n\n#include <nosuch.cuh>\n" + KERNEL, 3),
        ("\n#if VALUE == 2\n#include <nosuch.cuh>\n#endif\n" + KERNEL, 3),
        ("// one\n/* two\n three */\n" + KERNEL + "int x = missing;\n", 5),
        (KERNEL + "\n\n}", 5),
        ("#if VALUE == 2\n#include <nothing.cuh>\n#endif\n\nint x = missing;\n" + KERNEL, 5),
        ("#if VALUE == 1\n#include <nothing.cuh>\n#endif\n\nint x = missing;\n" + KERNEL, 5),
        ("#if VALUE == 2\n#include <nothing.cuh>\n#else\nint x = missing;\n#endif\n" + KERNEL, 4),
    ],
)
def test_a_compile_error_names_the_line_of_the_real_file(tmp_path: Path, text: str, line: int) -> None:
    """In the kernel, in an #include, behind one, and behind the last line where a brace is too many."""
    (tmp_path / "nothing.cuh").touch()
    assert failure(tmp_path, text).startswith(f"{tmp_path}/kernel.cu:{line}: error: ")


@pytest.mark.parametrize(
    "text",
    [
        "/*\n#include <nosuch.cuh>\n*/\n",
        "// \\\n#include <nosuch.cuh>\n",
        "#if 0\n#include <nosuch.cuh>\n#endif\n",
        "#if VALUE > 7 && \\\n VALUE < 9\n#include <nosuch.cuh>\n#endif\n",
        'constexpr char text[] = R"x(\n#include <nosuch.cuh>\n)x";\n',
    ],
)
def test_what_is_no_code_is_not_included(tmp_path: Path, text: str) -> None:
    """Comments, conditions that do not hold, and strings."""
    assert build(tmp_path, text + KERNEL).cubin


@pytest.mark.parametrize(
    "include",
    [
        '#include "value.cuh"',
        '  #  include "value.cuh" /* a comment\n over two lines */',
        '#ifndef NOT_DEFINED\n#include "value.cuh"\n#endif',
        '#define WANTS(x) (x > 0)\n#if WANTS(VALUE)\n#include "value.cuh"\n#endif',
    ],
)
def test_a_header_lands_in_no_namespace(tmp_path: Path, include: str) -> None:
    """What it declares is at home where the rest of the program looks for it."""
    (tmp_path / "value.cuh").write_text("#pragma once\nnamespace home { constexpr int three = 3; }\n")
    text = include + '\nextern "C" __global__ void KERNEL(int *p) { *p = VALUE + ::home::three; }\n'
    assert build(tmp_path, text).cubin


def test_a_header_does_not_see_the_macros_of_a_variant(tmp_path: Path) -> None:
    """A macro N must not change the templates of CUDA's own headers."""
    (tmp_path / "plain.cuh").write_text("#pragma once\ntemplate <int VALUE> struct Plain {};\n")
    assert build(tmp_path, '#include "plain.cuh"\n' + KERNEL).cubin


@pytest.mark.parametrize("code", ['"//"[0]', "'\\\"' /* \" */", "1'000 + '/'", '"/*"[0] + "*/"[1]'])
def test_what_looks_like_a_comment_in_a_string_is_code(tmp_path: Path, code: str) -> None:
    """And a number may have its digits separated."""
    assert build(tmp_path, KERNEL.replace("VALUE", code)).cubin


def test_a_unit_is_cached_wherever_its_folder_is(tmp_path: Path) -> None:
    """Also in one that is called include."""
    folder = tmp_path / "include"
    folder.mkdir()
    assert not build(folder, KERNEL).cached
    assert build(folder, KERNEL).cached


def test_a_nul_byte_in_a_kernel_is_named(tmp_path: Path) -> None:
    """With its place, in bytes."""
    with pytest.raises(ToolError, match=r"kernel\.cu holds a NUL byte at offset 4,"):
        build(tmp_path, "//\N{GREEK SMALL LETTER ALPHA}\0\n" + KERNEL)


@pytest.mark.parametrize("macros", [{"A B": 1}, {"A": "1\n#error"}, {"A": "1\\"}, {"": 1}])
def test_a_macro_that_is_none_is_named(tmp_path: Path, macros: Macros) -> None:
    """It would change the lines around it."""
    with pytest.raises(ToolError, match="macros"):
        build(tmp_path, KERNEL, {"k": macros})
