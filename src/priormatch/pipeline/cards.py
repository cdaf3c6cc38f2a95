"""What the cards of models say: how they came to be, what they scored, how to load them, what not to expect."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from priormatch import __version__
from priormatch.config import CardSettings, Settings
from priormatch.data.batches import Corpus
from priormatch.data.manifest import SUFFIX
from priormatch.data.normalizer import ENGLISH, LANGUAGE_FILE
from priormatch.progress import duration_text, say
from priormatch.recognizers.card import CARD, Card, read_card, write_card
from priormatch.recognizers.prior import Prior
from priormatch.recognizers.recognizer import Recognizer
from priormatch.runs.stage import plain, versions

PAPER = "[local prior matching](https://arxiv.org/abs/2002.10336)"
NO_LICENSE = (
    "None has been chosen yet. Whoever publishes this model must: `priormatch push --license cc-by-4.0` does it, or a"
    " line `license: cc-by-4.0` among those at the top of this file, and this section can go."
)
TEXT = "- text: "
TASKS = {"automatic-speech-recognition": "Automatic Speech Recognition", "text-generation": "Text Generation"}


def plain_card(name: str, model: Recognizer | Prior) -> Card:
    """What can be said of any model by looking at it."""
    hears = isinstance(model, Recognizer)
    facts = {
        "library_name": "priormatch",
        "pipeline_tag": "automatic-speech-recognition" if hears else "text-generation",
        "tags": ["priormatch", "speech-recognition" if hears else "language-model"],
    }
    what = (
        "A speech recognizer for audio at 16 kHz: time-depth separable convolutions, and a GRU that attends to them"
        if hears
        else "A prior: a gated convolutional language model that judges what a speech recognizer may have heard"
    )
    summary = f"{what}. {parameters(model)} parameters, {model.tokenizer.classes} classes."
    if (normalizer := model.tokenizer.normalizer) != ENGLISH:
        summary += f" Its text is written as the normalizer `{normalizer.name}` has it ({LANGUAGE_FILE})."
    return Card(facts, name, summary, {"Use": usage(model), "Limits": limits(model), "License": NO_LICENSE})


def usage(model: Recognizer | Prior, name: str = "MODEL") -> str:
    """How to use a model; one that has no name yet is called MODEL."""
    kind = type(model).__name__
    hears = isinstance(model, Recognizer)
    lines = [
        f"from priormatch import {kind}",
        "",
        f'model = {kind}.load("{name}")',
        'print(model.transcribe("talk.wav").text)' if hears else 'print(model.score_texts(["good morning"]))',
    ]
    words = f"{name} recordings" if hears else f"RECOGNIZER recordings --prior {name}"
    where = " MODEL is this folder, or its name on the Hub." if name == "MODEL" else ""
    code = "\n".join(lines)
    return f"```python\n{code}\n```\n\nOn the command line: `priormatch transcribe {words}`.{where}"


def limits(model: Recognizer | Prior) -> str:
    """What not to expect."""
    if isinstance(model, Prior):
        return (
            "It knows the text it was trained on, in that text's spelling, and is of use to recognizers with the same"
            " word pieces alone."
        )
    heard = f" and has learned from no more than {model.longest_heard:.1f} s" if model.longest_heard else ""
    return (
        "It knows the voices, the rooms, the words and the spelling of its training data: on other speech it may make"
        " far more errors than on its test sets. What it writes can be fluent and still not what was said: do"
        f" not rely on it unread. It writes at most {model.settings.longest_output} word pieces at a time{heard}:"
        " longer recordings must be cut, as `priormatch transcribe` does."
    )


def trained_card(
    name: str,
    model: Recognizer | Prior,
    how: str,
    data: Sequence[str],
    score: str,
    recipe: Mapping[str, Any],
    wanted: CardSettings,
) -> Card:
    """The card of a model whose training has just ended."""
    card = plain_card(name, model)
    given = {key: value for key, value in plain(wanted).items() if value}
    used = {key: plain(value) for key, value in recipe.items()}
    written = f"text written as the normalizer `{model.tokenizer.normalizer.name}` has it"
    language = f"language: {wanted.language or 'not named (card.language)'}, {written}"
    listing = yaml.safe_dump(used, sort_keys=False, default_flow_style=None, width=100)
    sections = {
        "Data": "\n".join(f"- {line}" for line in (*data, language)),
        "Results": f"- {score}",
        **card.sections,
        "Made with": made_with(versions()),
        "Settings": f"<details><summary>All of them</summary>\n\n```yaml\n{listing}```\n\n</details>",
    }
    if wanted.license:
        del sections["License"]
    return replace(card, facts=given | card.facts, summary=f"{card.summary} {how}", sections=sections)


def with_license(card: Card, license: str) -> Card:
    """A card that names a license, by the Hub's name for it, and no longer asks for one."""
    sections = {name: text for name, text in card.sections.items() if name != "License"}
    return replace(card, facts=card.facts | {"license": license}, sections=sections)


def made_with(found: Mapping[str, str]) -> str:
    """When, and with which versions."""
    others = {name: version for name, version in found.items() if name not in ("priormatch", "commit")}
    commit = f" (commit {found['commit']})" if "commit" in found else ""
    used = [f"priormatch {__version__}{commit}", *(f"{name} {version}" for name, version in others.items())]
    return f"{', '.join(used)}, on {time.strftime('%Y-%m-%d', time.gmtime())}."


def heard(role: str, corpus: Corpus, settings: Settings) -> str:
    """A line about speech: what it is for, what it is called, its duration and utterances."""
    names = ", ".join(called(Path(name), settings) for name in corpus.name.split(", "))
    return f"{role}: {names} ({duration_text(3600 * corpus.hours)}, {len(corpus):,} utterances)"


def called(file: Path, settings: Settings) -> str:
    """What people call the data in a file, without its place; what a run has made is called as its source."""
    name = file.name.removesuffix(SUFFIX).removesuffix(".txt")
    if file.parent.resolve() != (Path(settings.runs) / settings.name / "data").resolve():
        return name
    if settings.corpus == "demo":
        return f"{name} of the demo's corpus"
    sources = {
        "labeled": settings.labeled,
        "unlabeled": settings.unlabeled,
        "topline": settings.topline,
        "text": settings.text,
    }
    return Path(sources.get(name) or name).name.removesuffix(SUFFIX)


def judged(prior: Prior, folder: Path | None) -> str:
    """A line about the prior behind a recognizer: its size, and the name and the text that its own card tells."""
    card = None if folder is None else read_card(folder)
    size = f"a language model of {parameters(prior)} parameters"
    if card is None:
        return f"prior: {size}"
    learned = [line for line in card.sections.get("Data", "").splitlines() if line.startswith(TEXT)]
    return ", ".join(
        [f"prior: {card.title}", size, *(f"trained on {line.removeprefix(TEXT)}" for line in learned)]
    )


def title_of(out: Path, settings: Settings) -> str:
    """What to call the model of a folder: in a run, by the run's name too."""
    out = out.resolve()
    within = out.parent == (Path(settings.runs) / settings.name).resolve()
    return f"{settings.name}-{out.name}" if within else out.name


def leave_card(folder: Path, card: Card) -> None:
    """Write a card into a model folder, or say that the one there has been edited."""
    if not write_card(folder, card):
        say(f"{folder / CARD} has been edited: left as it is")


def add_results(models: Mapping[str, Path], results: Mapping[str, Any]) -> None:
    """Tell on the card of every system's model what it scored on the test sets, as results.json has it."""
    for system, folder in models.items():
        card = read_card(folder)
        if card is not None:
            write_card(folder, with_results(card, results["systems"][system], results["notes"]))
        elif (folder / CARD).exists():
            say(f"{folder / CARD} has been edited: its results are left to you")


def with_results(card: Card, tests: Mapping[str, Mapping[str, Any]], notes: Sequence[str]) -> Card:
    """A card that tells of error rates, as a table and as the Hub reads them, with notes on what they are of."""
    tests = {test: rates for test, rates in tests.items() if math.isfinite(rates["wer"])}
    if not tests:
        return card
    task = card.facts["pipeline_tag"]
    entries = [
        {
            "task": {"type": task, "name": TASKS[task]},
            "dataset": {"type": test, "name": test},
            "metrics": [
                {"type": metric, "value": round(rates[metric], 2), "name": f"{metric.upper()} %"}
                for metric in ("wer", "cer")
            ],
        }
        for test, rates in tests.items()
    ]
    rows = [
        f"| {test} | {rates['wer']:.2f} ({rates['wer_interval'][0]:.2f}-{rates['wer_interval'][1]:.2f})"
        f" | {rates['cer']:.2f} |"
        for test, rates in tests.items()
    ]
    table = "\n".join(["| test set | WER, % (95 %) | CER, % |", "|---|---|---|", *rows])
    validation = card.sections["Results"].partition("\n")[0]
    lines = [validation, "- on test sets, by greedy search:", "", table, *(f"\n{note}" for note in notes)]
    return replace(
        card,
        facts=card.facts | {"model-index": [{"name": card.title, "results": entries}]},
        sections=card.sections | {"Results": "\n".join(lines)},
    )


def parameters(model: Recognizer | Prior) -> str:
    """The number of a model's parameters, as people say it."""
    count = sum(each.numel() for each in model.parameters())
    return f"{count / 1e6:.1f} M" if count >= 1e6 else f"{count / 1e3:.0f} k"
