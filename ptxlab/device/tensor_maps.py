"""Tensor maps: made by the driver, and handed to a kernel by value. Loaded by the worker alone."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

from cuda.bindings import driver
from cuda.core import Kernel, Stream
from cuda.core.graph import GraphBuilder

from ptxlab.device.driver import checked
from ptxlab.device.job import Launch
from ptxlab.isa import tensor_map
from ptxlab.isa.tensor_map import TensorMap


def encode(m: TensorMap, address: int) -> bytes:
    """Return the bytes that the driver makes of a map, for a tensor at this address.

    Raises:
        CUDAError: the driver refuses it, without saying why.

    """
    strides = m.strides or (0,)  # rank 1 has none, and the driver refuses to be given no array
    head = (
        driver.CUtensorMapDataType(tensor_map.TYPES.index(m.dtype)),
        m.rank,
        address,
        [driver.cuuint64_t(each) for each in reversed(m.shape)],
        [driver.cuuint64_t(each) for each in reversed(strides)],
    )
    tail = (
        [driver.cuuint32_t(each) for each in reversed(m.element_strides)],
        driver.CUtensorMapInterleave(tensor_map.INTERLEAVES.index(m.interleave)),
        driver.CUtensorMapSwizzle(tensor_map.SWIZZLES.index(m.swizzle)),
        driver.CUtensorMapL2promotion(tensor_map.PROMOTIONS.index(m.l2)),
        driver.CUtensorMapFloatOOBfill(tensor_map.FILLS.index(m.oob)),
    )
    if m.corners is None:
        box = [driver.cuuint32_t(each) for each in reversed(m.box)]
        made = checked(driver.cuTensorMapEncodeTiled(*head, box, *tail))
    else:
        pixels, channels = m.box
        corners = (list(reversed(m.corners.lower)), list(reversed(m.corners.upper)))
        made = checked(driver.cuTensorMapEncodeIm2col(*head, *corners, channels, pixels, *tail))
    return struct.pack("<16Q", *(int(word) for word in made.opaque))


def launch(stream: Stream | GraphBuilder, step: Launch, kernel: Kernel, arguments: Sequence[bytes]) -> None:
    """Put a kernel on a stream, its arguments given as the bytes of each.

    cuda.core's own launch takes none but the maps that it made itself, which are not all that there are.
    """
    target = stream.stream if isinstance(stream, GraphBuilder) else stream
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = step.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = step.block
    config.sharedMemBytes = step.shared_bytes
    config.hStream = driver.CUstream(int(target.handle))
    config.attrs = _attributes(step)
    config.numAttrs = len(config.attrs)
    held = [ctypes.create_string_buffer(each, len(each)) for each in arguments]
    pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(each) for each in held))
    function = driver.CUfunction(int(kernel.handle))
    checked(driver.cuLaunchKernelEx(config, function, ctypes.addressof(pointers), 0))


def _attributes(step: Launch) -> list[driver.CUlaunchAttribute]:
    found = []
    if step.cluster:
        cluster = driver.CUlaunchAttribute()
        cluster.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        shape = cluster.value.clusterDim
        shape.x, shape.y, shape.z = step.cluster
        found.append(cluster)
    if step.programmatic:
        early = driver.CUlaunchAttribute()
        early.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        early.value.programmaticStreamSerializationAllowed = 1
        found.append(early)
    return found
