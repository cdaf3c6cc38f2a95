"""Audio files with damaged headers and samples are decoded, or refused for a reason, within bounds."""

import io
from pathlib import Path

import numpy as np
import pytest
import soundfile
from guard import fuzzed, survives
from hostile import damaged
from hypothesis import given
from hypothesis import strategies as st
from lhotse import MonoCut

from priormatch.data.audio import BadAudio, check_audio, open_recording
from priormatch.data.clips import open_file
from priormatch.data.faults import fault_of
from priormatch.data.manifest import utterance
from priormatch.data.pack import read_packed
from priormatch.data.pauses import Cutting
from priormatch.data.waveforms import read_samples, why_unreadable

pytestmark = pytest.mark.slow

SAMPLES = np.random.default_rng(0).uniform(-0.3, 0.3, 2400)
SAMPLES[800:1600] *= 0.001  # a pause
KINDS = [
    *(("WAV", "PCM_16", 16_000), ("WAV", "FLOAT", 16_000), ("WAV", "PCM_24", 44_100), ("WAV", "ULAW", 8_000)),
    *(
        ("WAV", "IMA_ADPCM", 16_000),
        ("FLAC", "PCM_16", 16_000),
        ("OGG", "VORBIS", 16_000),
        ("OGG", "OPUS", 16_000),
    ),
    *(("MP3", None, 16_000), ("AIFF", "PCM_16", 16_000), ("AU", "FLOAT", 8_000), ("W64", "DOUBLE", 16_000)),
    *(
        ("CAF", "PCM_16", 16_000),
        ("RF64", "PCM_16", 16_000),
        ("NIST", "PCM_16", 16_000),
        ("VOC", "PCM_16", 16_000),
    ),
]


def encoded(kind: tuple[str, str | None, int]) -> bytes:
    """A short recording in a format."""
    form, subtype, rate = kind
    file = io.BytesIO()
    soundfile.write(file, SAMPLES, rate, format=form, subtype=subtype)
    return file.getvalue()


FILES = {"_".join(map(str, kind)): encoded(kind) for kind in KINDS}
files = st.sampled_from(sorted(FILES)).flatmap(
    lambda name: st.tuples(st.just(name.split("_")[0].lower()), damaged(FILES[name], edges=100))
)
junk = st.tuples(st.sampled_from(["wav", "flac", "mp3", "ogg", "au"]), st.binary(max_size=300))


def read(cut: MonoCut) -> None:
    """Decode a cut as a reader of batches does."""
    try:
        samples = read_samples(cut)
    except Exception as error:  # which a reader of batches catches and tells
        assert 0 < len(why_unreadable(cut, error)) < 400
    else:
        assert np.isfinite(samples).all()
    fault = fault_of(cut)
    assert fault is None or 0 < len(fault.reason) < 400


def use_file(path: Path) -> None:
    """What verbs do with an audio file."""
    for decode in (True, False):
        reason = check_audio(path, decode)
        assert reason is None or 0 < len(reason) < 400
    for clip in open_file(path, Cutting()).clips:
        assert np.isfinite(clip.samples).all()
    cut = utterance("u", open_recording(path, "u", decode=True), None, None)
    read(cut)
    assert isinstance(read_packed(cut, 10**7), tuple | str)


@fuzzed
@given(file=files | files | files | junk)
def test_files(tmp_path_factory: pytest.TempPathFactory, file: tuple[str, bytes]) -> None:
    suffix, content = file
    path = tmp_path_factory.getbasetemp() / f"fuzzed.{suffix}"
    path.write_bytes(content)
    survives(use_file, path, refusals=(BadAudio,))


GOOD = FILES["WAV_PCM_16_16000"], FILES["WAV_FLOAT_16000"], FILES["FLAC_PCM_16_16000"]


@fuzzed
@given(data=st.data())
def test_files_that_changed_after_their_manifest_was_made(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "changed.wav"
    content = data.draw(st.sampled_from(GOOD))
    path.write_bytes(content)
    cut = utterance("u", open_recording(path, "u", decode=False), None, None)
    path.write_bytes(data.draw(damaged(content, edges=60)))

    survives(read, cut)
