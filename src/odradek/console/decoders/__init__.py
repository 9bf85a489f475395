"""Records as people read them. Everything here is given hostile bytes.

Each decoder turns bytes into values of Python that `json` can print, within limits of depth and
size, or raises `Undecodable` with a sentence. It runs in the worker, never in the console.
"""

from odradek.console.decoders.fields import (
    FORMATS,
    PREVIEW_BYTES,
    Decoder,
    Field,
    decoder_of,
    hex_dump,
)
from odradek.console.decoders.limits import DEPTH_MAX, Undecodable

__all__ = [
    "DEPTH_MAX",
    "FORMATS",
    "PREVIEW_BYTES",
    "Decoder",
    "Field",
    "Undecodable",
    "decoder_of",
    "hex_dump",
]
