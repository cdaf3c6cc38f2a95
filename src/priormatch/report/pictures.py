"""Pictures in data URIs: spectrograms and attention weights, as gray PNGs."""

import base64
import struct
import zlib

import numpy as np
import torch

from priormatch.data.features import LogMel

MELS = 64
FRAMES_AT_ONCE = 2  # averaged, which leaves 50 columns per second
QUIET, LOUD = -1.2, 2.2  # of normalized log-mel values: white and black


def spectrogram(samples: np.ndarray) -> str:
    """Draw samples (N,) at 16 kHz, with high frequencies at the top."""
    features, _ = LogMel(MELS)(torch.from_numpy(samples)[None], torch.tensor([len(samples)]))
    values = features[0].T.flip(0).numpy()  # (MELS, T)
    whole = values.shape[1] // FRAMES_AT_ONCE * FRAMES_AT_ONCE or values.shape[1]
    columns = values[:, :whole].reshape(MELS, -1, min(FRAMES_AT_ONCE, whole)).mean(axis=2)
    return shaded((columns - QUIET) / (LOUD - QUIET))


def shaded(values: np.ndarray) -> str:
    """Draw values (rows, columns): 0 and below is white, 1 and above is black."""
    gray = np.round(255 * (1 - np.clip(values, 0, 1))).astype(np.uint8)
    return "data:image/png;base64," + base64.b64encode(png(gray)).decode()


def png(gray: np.ndarray) -> bytes:
    """Encode gray values (rows, columns), uint8, as a PNG."""
    rows, columns = gray.shape
    header = struct.pack(">IIBBBBB", columns, rows, 8, 0, 0, 0, 0)  # 8 bits, gray
    lines = np.pad(gray, ((0, 0), (1, 0)))  # each line begins with its filter, none
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
