"""What ptxas makes of an mma: one tensor operation where the chip has it, an emulation where it has not.

Source: disassembly of every form by ptxas 13.0 and 13.5 for sm_75 to sm_121a; the mma probe checks each.
"""

from __future__ import annotations

from ptxlab.isa.mma import MmaForm, generation
from ptxlab.isa.mma_sparse import SparseForm

_SUFFIX = {"bf16": ".BF16", "tf32": ".TF32"}
_WIDER = {"s4": "S8", "u4": "U8"}


def tensor_operations(form: MmaForm | SparseForm, arch: str) -> dict[str, int]:
    """Return SASS opcode -> how many of it one instruction becomes; none where nothing of it is native."""
    chip = generation(arch)
    if isinstance(form, MmaForm) and form.volta:
        steps = 4 if form.acc == "f32" else 2
        return {f"HMMA.884.{form.acc.upper()}.{form.acc.upper()}": steps} if chip < 80 else {}
    if form.a == "f64":
        return _double(form, chip)
    if form.a == "b1":
        return _bits(form, chip)
    if form.a in ("e4m3", "e5m2"):
        return _eight_bit_floats(form, chip)
    if form.a in ("f16", "bf16", "tf32"):
        return {f"HMMA{_shape(form)}.{form.acc.upper()}{_SUFFIX.get(form.a, '')}": 1}
    return _integers(form, chip)


def emulation(form: MmaForm | SparseForm, arch: str) -> str:
    """Return a sentence on what stands for the instruction where it is not native; "" where it is."""
    made = tensor_operations(form, arch)
    if not made:
        return (
            f"Emulated on {arch}: no tensor operation at all, but FP32 multiplications, additions and "
            "shuffles; use m16n8k8 or m16n8k16."
        )
    ((opcode, count),) = made.items()
    if count == 1 or opcode.startswith("HMMA.884"):
        return ""
    hint = " FP8 at full speed needs wgmma." if form.a in ("e4m3", "e5m2") and generation(arch) == 90 else ""
    around = "" if form.a == "f64" else " and conversions around them"
    return f"Emulated on {arch}: {count} {opcode}{around} stand for one {form.a} mma.{hint}"


def _shape(form: MmaForm | SparseForm, k: int = 0) -> str:
    sparse = ".SP" if isinstance(form, SparseForm) else ""
    return f"{sparse}.{form.m}{form.n}{k or form.k}"


def _double(form: MmaForm | SparseForm, chip: int) -> dict[str, int]:
    if chip < 90:
        return {"DMMA.884": 1}
    if chip < 100:
        return {f"DMMA.{form.m}x8x{form.k}": 1}
    return {"DMMA.8x8x4": form.m // 8 * form.k // 4}


def _bits(form: MmaForm | SparseForm, chip: int) -> dict[str, int]:
    if chip >= 100:
        return {"IMMA.16832.U8.U8": form.k // 32}
    if chip >= 90:
        return {f"BMMA{_shape(form)}.AND.POPC": 2 if form.op == "xor" else 1}
    return {f"BMMA{_shape(form)}.{form.op.upper()}.POPC": 1}


def _eight_bit_floats(form: MmaForm | SparseForm, chip: int) -> dict[str, int]:
    if chip == 89 or chip // 10 == 12:
        return {f"QMMA{_shape(form)}.{form.acc.upper()}.{form.a.upper()}.{form.b.upper()}": 1}
    return {f"HMMA{_shape(form, form.k // 2)}.{form.acc.upper()}": 2}


def _integers(form: MmaForm | SparseForm, chip: int) -> dict[str, int]:
    narrow = form.a in _WIDER and chip >= 90
    types = [_WIDER[each] if narrow else each.upper() for each in (form.a, form.b)]
    k = form.k // 2 if narrow else form.k
    shape = _shape(form, k)
    if form.m == 8 and k == 16 and chip >= 100:
        shape = ".16816"  # by the operation for 16 rows
    return {f"IMMA{shape}.{types[0]}.{types[1]}": 2 if narrow else 1}
