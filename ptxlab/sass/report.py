"""What a build's machine code holds, kernel by kernel: the answer of ``ptxlab sass``."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Any

from ptxlab.toolchain.build import Build


def kernels(build: Build) -> list[dict[str, Any]]:
    """Return what each kernel holds, in the order of the source. All counts are static.

    The answer is kept in the build's cache entry; callers must not change it.

    Returns:
        For each kernel ``name``, ``readable_name`` (without mangling, types and template arguments),
        ``arch``, ``instructions`` (without padding), ``padding`` (NOPs and the trailing branch to
        itself), ``registers``, ``spill_bytes`` (stores and loads; None for a bare
        cubin), ``shared_bytes`` (static), ``counts`` (opcode with all modifiers -> how many),
        ``families`` (opcode without modifiers -> how many), ``tensor_ops`` (in called internal functions
        too), ``tensor_dummies`` (wgmma that ptxas injected and that compute nothing: they are in the
        counts and not in ``tensor_ops``), ``loops``, ``advisories`` (C75xx), ``emulated``, ``warnings``,
        ``async_readers`` (what reads shared memory through the asynchronous proxy: how many), and
        ``unfenced`` (ordinary writes that come to one of them without a proxy fence on some path).

    Raises:
        MissingError: there is no nvdisasm here.
        ToolError: the machine code is damaged; the message is the tool's own.

    """
    found: list[dict[str, Any]] = build.memo(f"kernels-{_code_identity()}", lambda: _analysed(build))
    return found


def _analysed(build: Build) -> list[dict[str, Any]]:
    from ptxlab.sass.analysis import analyse  # not needed when the answer is in the cache

    return analyse(build)


@functools.cache
def _code_identity() -> str:
    """Return the hash of the code that makes these reports, so that an old report never outlives it."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:8]
