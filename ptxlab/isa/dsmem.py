"""Distributed shared memory: how a block of a cluster names, reads and changes the memory of another.

An address in the window of the cluster is an offset in a block's shared memory, with the block's rank from
bit 24 up. mapa puts another rank there and leaves the offset; getctarank returns it. A block's own addresses
have its own rank, so that they are the same in both windows. PTX does not say this: it is what ptxas 13 makes
of mapa (PRMT) and of the address of a shared array (ULEA with SR_CgaCtaId and 24), and what an H200 returns.
Source: PTX ISA, "mapa", "getctarank", "st.async", "red.async", "atom".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxlab.isa import bulk_copy

RANK_BIT = 24
"""Where the rank begins in an address."""

FIRST_OFFSET = 1024
"""Of dynamic shared memory in a kernel without static one: the system keeps the first KB for itself."""

OPS = ("mapa", "ld", "st", "st.async", "atom", "red", "red.async")

PTX = {
    "mapa": "mapa.shared::cluster.u32", "ld": "ld.shared::cluster", "st": "st.shared::cluster",
    "st.async": "st.async.shared::cluster.mbarrier::complete_tx::bytes",
    "atom": "atom.relaxed.cluster.shared::cluster", "red": "red.relaxed.cluster.shared::cluster",
    "red.async": "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes",
}  # fmt: skip

REDUCTIONS = bulk_copy.IN_SHARED
"""The operations of atom, red and red.async that this models, all on 32 bits."""

LANES = 32
Words = NDArray[np.uint32]


@dataclass(frozen=True)
class Outcome:
    """What an operation leaves.

    Attributes:
        after: [block][slot][lane][word], shared memory.
        answers: [block][peer][lane][word], what each got; None where nothing is returned.

    """

    after: Words
    answers: Words | None


def sass(op: str, words: int, reduction: str) -> dict[str, int]:
    """Return what ptxas 13 makes of an operation (seen in the disassembly of the dsmem probe).

    Loads and stores go by generic addresses; a red is an atom whose answer is not used. The probe has mapa in
    two forms, for addresses in the window and for generic ones.
    """
    width = {1: "", 2: ".64", 4: ".128"}[words]
    opcode = {
        "mapa": "PRMT", "ld": f"LD.E{width}", "st": f"ST.E{width}", "st.async": f"STAS{width}",
        "atom": f"ATOM.E.{reduction.upper()}", "red": f"ATOM.E.{reduction.upper()}",
        "red.async": f"REDAS.{reduction.upper()}",
    }[op]  # fmt: skip
    return {opcode: 2 if op == "mapa" else 1}


def map_to_block(address: int, rank: int) -> int:
    """Return what mapa makes of an address in the window of the cluster."""
    return address & (1 << RANK_BIT) - 1 | rank << RANK_BIT


def rank_of_address(address: int) -> int:
    """Return what getctarank makes of it."""
    return address >> RANK_BIT


def bytes_landing(op: str, blocks: int, words: int) -> int:
    """Return the bytes that the mbarrier of each block counts when every lane of every block sends once."""
    return blocks * LANES * 4 * words if op.endswith(".async") else 0


def addresses(blocks: int) -> Words:
    """Return [block][peer][lane]: own address, mapa's, getctarank's answer, how far generic mapa went."""
    found = np.zeros((blocks, blocks, LANES, 4), dtype=np.uint32)
    for own, peer, lane in np.ndindex(blocks, blocks, LANES):
        address = map_to_block(FIRST_OFFSET + 16 * lane, own)
        there = map_to_block(address, peer)
        moved = (peer - own << RANK_BIT) % (1 << 32)
        found[own, peer, lane] = (address, there, rank_of_address(there), moved)
    return found


def before(op: str, blocks: int, words: int) -> Words:
    """Return shared memory before: each word carries its block, slot, lane and number."""
    slots = blocks if op in ("st", "st.async") else 1
    block, slot, lane, word = np.indices((blocks, slots, LANES, words), dtype=np.uint32)
    return np.asarray(0x80000000 | block << 24 | slot << 16 | lane << 8 | word, dtype=np.uint32)


def run(op: str, blocks: int, words: int, reduction: str) -> Outcome:
    """Return what is left when every lane of every block does it once in every block."""
    memory = before(op, blocks, words)
    if op == "mapa":
        return Outcome(memory, addresses(blocks))
    if op == "ld":
        return Outcome(memory, np.broadcast_to(memory[:, 0], (blocks, *memory[:, 0].shape)).copy())
    if op in ("st", "st.async"):
        peer, own, lane, word = np.indices(memory.shape, dtype=np.uint32)
        left = own << 24 | peer << 16 | lane << 8 | word
        return Outcome(np.asarray(left, dtype=np.uint32), None)
    answers = np.zeros((blocks, blocks, LANES, 1), dtype=np.uint32)
    for own, peer in np.ndindex(blocks, blocks):  # those of lower rank first
        answers[own, peer] = memory[peer, 0]
        memory[peer, 0] = combined(reduction, memory[peer, 0], operands(own, reduction))
    return Outcome(memory, answers if op == "atom" else None)


def operands(block: int, reduction: str) -> Words:
    """Return the operand of each lane of a block.

    What inc and dec leave depends on the order of their operands: all blocks have the same.
    """
    first = 1 if reduction in ("inc", "dec") else LANES * block + 1
    return np.arange(first, first + LANES, dtype=np.uint32)[:, None]


def combined(reduction: str, old: Words, operand: Words) -> Words:
    """Return what an operation makes of words in memory."""
    raw = [np.ascontiguousarray(each, dtype=np.uint32).view(np.uint8).ravel() for each in (old, operand)]
    dtype = REDUCTIONS[reduction][0]
    return bulk_copy.combined(reduction, dtype, *raw).view(np.uint32).reshape(old.shape)
