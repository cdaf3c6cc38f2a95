"""Children that end with their parent, and readers that are killed."""

import multiprocessing
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from narrowing import present

from priormatch.config import AudioSettings, BatchSettings
from priormatch.data.batches import BatchStream, UtteranceReader, once
from priormatch.data.corpus import Corpus
from priormatch.data.tokenizer import Tokenizer
from priormatch.errors import UserError
from priormatch.processes import deferred_stop, explained_readers

TWO = BatchSettings(utterances=2)


@pytest.fixture
def reader(tiny_corpus: Callable[..., Path], tiny_tokenizer: Tokenizer) -> UtteranceReader:
    return UtteranceReader(Corpus.load(tiny_corpus(40), AudioSettings()), tiny_tokenizer)


def readers_of(others: set[Any]) -> set[BaseProcess]:
    return set(multiprocessing.active_children()) - others


def failure(take: Any, *killed: BaseProcess) -> str:
    """What taking batches ends with after readers were killed; torch may raise its error between any two lines."""
    try:
        with explained_readers():
            for each in killed:
                os.kill(present(each.pid), signal.SIGKILL)
            while True:
                take()
    except UserError as error:
        return str(error)


SENTENCE = re.compile(
    r"a process that reads audio was killed, .* out of memory \(.+\): set audio.workers lower"
)


def test_a_reader_that_is_killed_is_one_sentence(reader: UtteranceReader) -> None:
    others = set(multiprocessing.active_children())
    stream = BatchStream(reader, TWO, 1, workers=2)
    stream.take()
    assert SENTENCE.match(failure(stream.take, readers_of(others).pop()))
    stream.close()


def test_a_reader_that_is_killed_while_decoding_is_one_sentence(reader: UtteranceReader) -> None:
    others = set(multiprocessing.active_children())
    batches = once(reader, 1.0, workers=1)
    next(batches)
    assert SENTENCE.match(failure(batches.__next__, *readers_of(others)))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a reader cannot learn who sent a signal")
def test_readers_leave_stops_to_their_parent(reader: UtteranceReader) -> None:
    """Terminals send Ctrl-C, and clusters SIGTERM, to every process of a command."""
    others = set(multiprocessing.active_children())
    stream = BatchStream(reader, TWO, 1, workers=2)
    stream.take()
    readers = readers_of(others)
    for name in ("INT", "TERM"):
        subprocess.run(
            ["sh", "-c", f"kill -{name} {' '.join(str(each.pid) for each in readers)}"], check=True
        )
    for _ in range(40):
        stream.take()
    assert readers_of(others) == readers
    for each in readers:
        each.terminate()  # by the parent
        each.join(5)
    assert not readers_of(others)
    assert SENTENCE.match(failure(stream.take))


START = """
import multiprocessing, sys
from pathlib import Path
from priormatch.config import AudioSettings, BatchSettings
from priormatch.data.batches import BatchStream, UtteranceReader
from priormatch.data.corpus import Corpus
from priormatch.data.tokenizer import Tokenizer

corpus = Corpus.load(Path(sys.argv[1]), AudioSettings())
reader = UtteranceReader(corpus, Tokenizer.load(Path(sys.argv[2])))
stream = BatchStream(reader, BatchSettings(utterances=2), 1, workers=2)
stream.take()
print(*(each.pid for each in multiprocessing.active_children()), flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_readers_die_with_their_parent(
    tiny_corpus: Callable[..., Path], tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    tiny_tokenizer.save(tmp_path / "tokenizer")
    command = [sys.executable, "-c", START, str(tiny_corpus(40)), str(tmp_path / "tokenizer")]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        readers = [os.pidfd_open(int(each)) for each in present(parent.stdout).readline().split()]
        assert len(readers) == 2
        parent.kill()
    for each in readers:
        assert select.select([each], [], [], 1)[0], "at once, and not when it next looks for its parent"
        os.close(each)


@pytest.mark.parametrize(("later", "at_once"), [(0.5, False), (1.5, True)])
def test_a_signal_that_comes_twice_at_the_same_moment_is_one(
    later: float, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`timeout` sends it to the process and to its group; both must not end a training that is about to save."""
    now = [10.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    reached = []
    try:
        with pytest.raises(KeyboardInterrupt), deferred_stop() as stop:
            signal.raise_signal(signal.SIGINT)
            now[0] += later
            signal.raise_signal(signal.SIGINT)
            reached.append(stop.signal)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert reached == ([] if at_once else [signal.SIGINT])
