"""`priormatch hypotheses`: tables with the errors marked, and JSON of the same."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lhotse import CutSet
from rich.console import Console
from tiny_run import command

from priormatch.config import ConvLMSettings, FusionSettings
from priormatch.data.recordings import PART_OF
from priormatch.data.tokenizer import Tokenizer
from priormatch.decoding.tuning import write_tuned
from priormatch.matching.hypotheses import Hypothesis, Inspection
from priormatch.pipeline.show_hypotheses import marked, show
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.scoring.alignment import align


def hypothesis(text: str, reference: str | None = None, dropped: str | None = None) -> Hypothesis:
    words = None if reference is None else align(reference, text)
    return Hypothesis(1, text, text.split(), -1.5, -32.24, 0.6321, dropped, words)


@pytest.mark.parametrize(
    ("said", "heard", "shown"),
    [
        ("she walked fast", "she looked fast", "she walked→looked fast"),
        ("she walked fast", "she fast", "she -walked fast"),
        ("she fast", "she very fast", "she +very fast"),
        (None, "she fast", "she fast"),
    ],
)
def test_errors_are_marked_by_signs(said: str | None, heard: str, shown: str) -> None:
    assert marked(hypothesis(heard, said)).plain == shown


def shown(inspection: Inspection) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    show([inspection], console)
    return console.export_text()


def test_a_table_tells_everything() -> None:
    heard = [hypothesis("at nine", "at ten"), hypothesis("[bold]ten", "at ten", "too short, 2 for 4")]
    text = shown(Inspection("u-1", "at ten", -34.14, 4, False, heard))
    for part in ("u-1", "log p_y -34.14: at ten", "reference length 4", "no end", "ten→nine", "-32.24"):
        assert part in text
    assert "[bold]ten" in text  # what was heard is no markup
    assert "too short, 2 for 4" in text
    assert "0.6321" in text


def test_what_is_not_known_is_not_told() -> None:
    text = shown(Inspection("u-1", None, None, 0, True, [hypothesis("at nine")]))
    assert "at nine" in text
    assert not any(part in text for part in ("reference", "dropped", "no end", "substitution", "None"))


@pytest.fixture
def words(
    tiny_recognizer: SpeechRecognizer,
    tiny_prior: ConvPrior,
    tiny_corpus: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Path | str, ...]:
    monkeypatch.chdir(tmp_path)
    tiny_recognizer.save("model")
    tiny_prior.save("prior")
    cuts = ("--cuts", tiny_corpus(9))
    return ("hypotheses", "--model", "model", "--prior", "prior", *cuts, "audio.workers=0")


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_json_of_as_many_as_wanted_always_the_same(
    words: tuple[Path | str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*words, "--json", "--count", 3, "--beam-size", 2) == 0
    found = lines(capsys)
    assert len(found) == 3
    for each in found:
        assert each["reference"]
        assert 1 <= len(each["hypotheses"]) <= 2
        assert sum(one["weight"] for one in each["hypotheses"]) == pytest.approx(1)
    assert command(*words, "--json", "--count", 3, "--beam-size", 2) == 0
    assert lines(capsys) == found


def test_utterances_by_their_ids_in_that_order_and_filtered_by_lengths(
    words: tuple[Path | str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "lengths.jsonl").write_text('{"id": "tiny-7", "hypothesis": "x", "pieces": 30}\n')
    chosen = ("--id", "tiny-7", "--id", "tiny-2", "--lengths", "lengths.jsonl")
    assert command(*words, *chosen, "--json") == 0
    seven, two = lines(capsys)
    assert (seven["id"], seven["reference_length"], two["id"]) == ("tiny-7", 31, "tiny-2")
    assert all(one["dropped"].startswith(("too short", "empty")) for one in seven["hypotheses"])
    assert all(one["dropped"] in ("no reference length", "empty") for one in two["hypotheses"])
    assert command(*words, *chosen) == 0
    assert "too short" in capsys.readouterr().out
    assert command(*words, *chosen, "--json", "matching.length_filter=[]") == 0
    assert all(one["dropped"] is None for each in lines(capsys) for one in each["hypotheses"])


def test_the_prior_reads_what_was_heard_before(
    words: tuple[Path | str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path, tiny_prior: ConvPrior
) -> None:
    heard = [{"id": f"tiny-{number}", "hypothesis": "at nine", "pieces": 3} for number in range(9)]
    (tmp_path / "lengths.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in heard))
    cuts = list(CutSet.from_file(tmp_path / "tiny.jsonl.gz"))
    for cut, recording in zip(cuts, "aaabbbccc", strict=True):
        cut.custom = {PART_OF: [recording, 0.0]}
    CutSet.from_cuts(cuts).to_file(tmp_path / "tiny.jsonl.gz")
    context = ("matching.context=true", "prior.model.context=true")
    chosen = (*words, "--id", "tiny-3", "--id", "tiny-4", "--json", *context)
    assert command(*chosen, "--lengths", "lengths.jsonl") == 2
    assert "prior.model.context=true" in capsys.readouterr().err
    tiny_prior.settings.context = True
    tiny_prior.save("prior")
    assert command(*chosen) == 2
    assert "matching.context needs transcripts" in capsys.readouterr().err
    assert command(*chosen, "--lengths", "lengths.jsonl") == 0
    first, second = lines(capsys)
    for each, before in ((first, ""), (second, "at nine")):
        expected = float(tiny_prior.score_texts([each["reference"]], [before])[0])
        assert each["reference_log_prior"] == pytest.approx(expected, abs=1e-4)
    alone = float(tiny_prior.score_texts([second["reference"]])[0])
    assert second["reference_log_prior"] != pytest.approx(alone, abs=1e-4)


def test_values_for_a_search_with_the_prior_are_used_or_refused(
    words: tuple[Path | str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_tuned(tmp_path / "fusion.yaml", FusionSettings(lm_weight=1.5, token_bonus=3.0), {})
    tuned = (*words, "--json", "--fusion", "fusion.yaml")
    assert command(*tuned) == 2
    assert "set matching.hypotheses=asr_lm, or omit --fusion" in capsys.readouterr().err
    assert command(*tuned, "matching.hypotheses=asr_lm") == 0
    found = lines(capsys)
    assert command(*words, "--json", "matching.hypotheses=asr_lm") == 0
    assert lines(capsys) != found


def test_what_is_not_of_these_utterances_is_refused(
    words: tuple[Path | str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "lengths.jsonl").write_text('{"id": "stranger", "hypothesis": "x", "pieces": 3}\n')
    assert command(*words, "--lengths", "lengths.jsonl") == 2
    assert "lengths.jsonl has no lengths of these utterances" in capsys.readouterr().err
    assert command(*words, "--id", "nobody") == 2
    assert "tiny.jsonl.gz contains no utterance nobody" in capsys.readouterr().err


def test_a_prior_with_another_tokenizer_scores_texts(
    words: tuple[Path | str, ...],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    other_tokenizer: Tokenizer,
    tiny_prior_settings: ConvLMSettings,
) -> None:
    from priormatch.recognizers.prior import ConvPrior

    ConvPrior(tiny_prior_settings, other_tokenizer).save("prior")
    prior = ConvPrior.load("prior")
    assert command(*words, "--json") == 0
    for each in lines(capsys):
        for one in each["hypotheses"]:
            assert one["log_prior"] == pytest.approx(float(prior.score_texts([one["text"]])), abs=1e-3)
