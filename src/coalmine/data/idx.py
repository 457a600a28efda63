"""The idx format, in which the MNIST family is published.

    bytes       content
    0–1         zero
    2           type: 8 uint8, 9 int8, 11 int16, 12 int32, 13 float32, 14 float64
    3           number of axes
    4 each      length of each axis, big-endian
    then        the values, big-endian, the last axis running fastest

Files may be compressed with gzip.
"""

import gzip
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.data._files import broken

_TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_CHUNK = 1 << 20  # read piecewise, so that a false length in a header cannot ask for all memory


def read_idx(path: Path) -> NDArray[Any]:
    """The array in an idx file, plain or compressed."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            zero, kind, axes = struct.unpack(">HBB", file.read(4))
            if zero != 0 or kind not in _TYPES:
                raise ValueError("its first four bytes are not those of an idx file")
            shape = struct.unpack(f">{axes}I", file.read(4 * axes))
            dtype = np.dtype(_TYPES[kind])
            promised = dtype.itemsize
            for length in shape:
                promised *= length
            content = bytearray()
            while len(content) <= promised and (piece := file.read(_CHUNK)):
                content += piece
    except (OSError, EOFError, zlib.error, struct.error, ValueError) as error:
        raise broken(path, error, what="a complete idx file") from None
    if len(content) != promised:
        more = "more" if len(content) > promised else f"only {len(content):,}"
        raise broken(path, f"its header {shape} promises {promised:,} bytes, there are {more}", what="a complete idx file")
    return np.frombuffer(bytes(content), dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def read_images(images: Path, labels: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Grey images and their classes."""
    pixels, classes = read_idx(images), read_idx(labels)
    if pixels.ndim != 3 or pixels.dtype != np.uint8:
        raise broken(images, f"it holds {pixels.dtype} of shape {pixels.shape}", what="a file of grey images")
    if classes.ndim != 1 or classes.dtype != np.uint8:
        raise broken(labels, f"it holds {classes.dtype} of shape {classes.shape}", what="a file of labels")
    if len(pixels) != len(classes):
        raise broken(labels, f"it has {len(classes):,} labels for {len(pixels):,} images", what=f"the labels of {images.name}")
    return pixels, classes.astype(np.int64)
