"""A PNG of the simplest kind goes in, its pixels come out, in less time than Pillow's own way takes; else None.

The simplest kind: 8-bit RGB, not interlaced, with nothing in it but pixels, whole to its last byte. Small images are
mostly such. Whatever is odd about a file is for others to tell.
"""

from __future__ import annotations

import struct
from zlib import crc32

from PIL import Image

_BEGIN = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4s", 13, b"IHDR")
_RGB = bytes([8, 2, 0, 0, 0])  # bits, colour type, compression, filter, interlacing
_END = struct.pack(">I4sI", 0, b"IEND", crc32(b"IEND"))
_FIRST_CHUNK, _SEED = 33, crc32(b"IDAT")


def open_plain_png(content: bytes, max_pixels: int) -> Image.Image | None:
    """The image, decoded."""
    if content[:16] != _BEGIN or content[24:29] != _RGB or crc32(content[12:29]) != _number(content, 29):
        return None
    size = width, height = _number(content, 16), _number(content, 20)
    if not 0 < width * height <= max_pixels:
        return None
    compressed = _compressed(content)
    if compressed is None:
        return None
    try:
        return Image.frombytes("RGB", size, compressed, "zip", "RGB", 0)
    except (ValueError, OSError):  # pixels that end too early, or make no sense
        return None


def _compressed(content: bytes) -> bytes | None:
    """What the chunks of pixels hold, unless there are other chunks, or a checksum is wrong."""
    parts, at, end = [], _FIRST_CHUNK, len(content) - len(_END)
    while at < end:
        stop = at + 8 + _number(content, at)
        part = content[at + 8 : stop]
        if content[at + 4 : at + 8] != b"IDAT" or stop + 4 > end or crc32(part, _SEED) != _number(content, stop):
            return None
        parts.append(part)
        at = stop + 4
    return b"".join(parts) if at == end and content[end:] == _END else None


def _number(content: bytes, at: int) -> int:
    return int.from_bytes(content[at : at + 4], "big")
