"""The verb `serve`, up to where the page begins: what it refuses, and what it says of who can reach it."""

import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_run import command

from priormatch.cli.serve import is_this_machine
from priormatch.config import ConvLMSettings
from priormatch.data.tokenizer import Tokenizer
from priormatch.errors import UserError
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.serve import server


@pytest.fixture
def home(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tiny_recognizer: SpeechRecognizer,
    tiny_prior: ConvPrior,
    other_tokenizer: Tokenizer,
    tiny_prior_settings: ConvLMSettings,
) -> list[Any]:
    """A folder with models, and serving that ends at once; gives what would have been served."""
    monkeypatch.chdir(tmp_path)
    tiny_recognizer.save("model")
    tiny_prior.save("prior")
    ConvPrior(tiny_prior_settings, other_tokenizer).save("stranger")
    served = []
    monkeypatch.setattr(server, "serve", lambda *given: served.append(given))
    monkeypatch.setattr(server, "require_gradio", lambda: None)
    return served


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def test_what_is_served(home: list[Any], free_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    limits = ("--most-minutes", "2", "--most-megabytes", "7", "--beam-size", "5", "--longest", "6")
    assert command("serve", "model", "--prior", "prior", "--port", free_port, *limits) == 0
    ((transcriber, about, host, port, megabytes),) = home
    assert "Recognizer: <code>model</code>. Prior: <code>prior</code>." in about
    assert (host, port, megabytes) == ("127.0.0.1", free_port, 7)
    assert (transcriber.most_seconds, transcriber.cutting.longest) == (120.0, 6.0)
    assert transcriber.prior is not None and transcriber.other is None
    assert "WARNING" not in capsys.readouterr().err


def test_threads_are_as_asked_for_and_untuned_values_reported(
    home: list[Any], free_port: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    assert command("serve", "model", "--prior", "prior", "--port", free_port, "--threads", "3") == 0
    assert asked == [3]
    assert "shallow fusion is not tuned" in capsys.readouterr().err


def test_it_says_loudly_when_others_can_reach_it(
    home: list[Any], free_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("serve", "model", "--host", "0.0.0.0", "--port", free_port) == 0
    printed = capsys.readouterr()
    assert "WARNING: listening on 0.0.0.0 without a password" in printed.err + printed.out
    assert home[0][0].prior is None and "Prior: none." in home[0][1]


def test_a_second_recognizer_is_served_beside(home: list[Any], free_port: int) -> None:
    assert command("serve", "model", "--compare", "model", "--port", free_port) == 0
    ((transcriber, about, *_),) = home
    assert isinstance(transcriber.other, SpeechRecognizer)
    assert "Second recognizer: <code>model</code>." in about


def test_a_second_recognizer_that_is_none_is_refused(
    home: list[Any], free_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("serve", "model", "--compare", "prior", "--port", free_port) == 2
    assert "prior" in capsys.readouterr().err and home == []


def test_a_port_that_is_taken_gets_a_sentence(home: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert command("serve", "model", "--port", port) == 2
    printed = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1, port {port} (Address already in use): use another --port" in printed
    assert home == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["model", "--host", "256.1.1.1"], "cannot listen on 256.1.1.1"),
        (["model", "--port", "70000"], "--port"),
        (["model", "--fusion", "fusion.yaml"], "pass --prior too"),
        (["nowhere"], "nowhere"),
        (["prior"], "prior"),
        (["model", "--prior", "model"], "model"),
    ],
)
def test_what_is_refused(
    home: list[Any], free_port: int, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    port = [] if "--port" in words else ["--port", free_port]
    assert command("serve", *words, *port) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("priormatch: ")]
    assert why in line
    assert home == []


def test_without_gradio_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'priormatch\[page\]'"):
        server.require_gradio()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_addresses_that_are_this_machine(host: str) -> None:
    assert is_this_machine(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_addresses_that_others_can_reach(host: str) -> None:
    assert not is_this_machine(host)
