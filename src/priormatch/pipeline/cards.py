"""Content of model cards: how a model was trained, its scores, its use and its limits."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from priormatch import __version__
from priormatch.config import CardSettings, ModelSettings, Settings
from priormatch.data.corpus import Corpus
from priormatch.data.manifest import SUFFIX
from priormatch.data.normalizer import ENGLISH, LANGUAGE_FILE, Normalizer
from priormatch.distributed import is_main
from priormatch.progress import duration_text, say
from priormatch.recognizers.card import CARD, Card, read_card, write_card
from priormatch.recognizers.hf_prior import HuggingFacePrior
from priormatch.recognizers.hf_recognizer import HuggingFaceRecognizer
from priormatch.recognizers.ngram_prior import NgramPrior
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.runs.stage import plain, versions

PAPER = "[local prior matching](https://arxiv.org/abs/2002.10336)"
NO_LICENSE = (
    "None has been chosen yet. Choose one before you publish this model: use `priormatch push --license cc-by-4.0`, or"
    " add a line such as `license: cc-by-4.0` to the metadata at the top of this file and remove this section."
)
TEXT = "- text: "
Model = SpeechRecognizer | ConvPrior | NgramPrior
KNOWN = ConvPrior | NgramPrior | HuggingFacePrior
"""Priors that a card can describe."""
TASKS = {"automatic-speech-recognition": "Automatic Speech Recognition", "text-generation": "Text Generation"}


def plain_card(name: str, model: Model) -> Card:
    """The card of any model, from the model alone."""
    hears = isinstance(model, SpeechRecognizer)
    facts = {
        "library_name": "transformers" if isinstance(model, HuggingFaceRecognizer) else "priormatch",
        "pipeline_tag": "automatic-speech-recognition" if hears else "text-generation",
        "tags": ["priormatch", "speech-recognition" if hears else "language-model"],
    }
    if isinstance(model, HuggingFaceRecognizer) and model.origin.commit:
        facts["base_model"] = model.origin.source.partition("@")[0]
    summary = f"{kind_in_words(model)}. {size_in_words(model)}."
    if (normalizer := normalizer_of_model(model)) != ENGLISH:
        summary += f" Its text uses the normalizer `{normalizer.name}` ({LANGUAGE_FILE})."
    return Card(facts, name, summary, {"Use": usage(model), "Limits": limits(model), "License": NO_LICENSE})


def kind_in_words(model: Model) -> str:
    """What a model is."""
    if isinstance(model, HuggingFaceRecognizer):
        origin = model.origin
        commit = f", commit {origin.commit}" if origin.commit else ""
        kind = type(model.network).__name__
        return (
            f"A speech recognizer for audio at 16 kHz: {kind} of transformers, from `{origin.source}`{commit}"
        )
    if isinstance(model, SpeechRecognizer):
        return f"A speech recognizer for audio at 16 kHz: {network(model.settings)}"
    if isinstance(model, NgramPrior):
        lm = f"a word {model.model.order}-gram language model"
    else:
        lm = "a gated convolutional language model"
    return f"A prior: {lm} that scores the hypotheses of a speech recognizer"


def size_in_words(model: Model) -> str:
    """The size of a model, and of its vocabulary."""
    if isinstance(model, NgramPrior):
        return f"{model.model.ngrams:,} n-grams of {len(model.model.words):,} words"
    classes = f"{model.tokenizer.classes} classes, {model.tokenizer.unit}s and the end of sentence"
    return f"{parameters(model)} parameters, {classes}"


def normalizer_of_model(model: Model) -> Normalizer:
    """The text normalizer of a model."""
    return model.normalizer if isinstance(model, NgramPrior) else model.tokenizer.normalizer


def network(settings: ModelSettings) -> str:
    """A recognizer's encoder and outputs, in words."""
    encoder = {"tds": "time-depth separable convolutions", "conformer": "a Conformer"}[settings.encoder]
    gru, ctc = "a GRU that attends to the frames", "a CTC output layer"
    both = f"{gru}, and {ctc} with weight {settings.ctc_weight:g} in the search"
    outputs = {
        "attention": f"and {gru}",
        "ctc": f"and {ctc}",
        "hybrid": both if settings.ctc_weight else f"and {gru}; {ctc} only helped to train it",
    }
    return f"{encoder}, {outputs[settings.kind]}"


def usage(model: Model, name: str = "MODEL") -> str:
    """How to use a model; without a name it is called MODEL."""
    kind = type(model).__name__
    hears = isinstance(model, SpeechRecognizer)
    lines = [
        f"from priormatch import {kind}",
        "",
        f'model = {kind}.load("{name}")',
        'print(model.transcribe("talk.wav").text)' if hears else 'print(model.score_texts(["good morning"]))',
    ]
    words = f"{name} recordings" if hears else f"RECOGNIZER recordings --prior {name}"
    where = " MODEL is this folder or its name on the Hub." if name == "MODEL" else ""
    if isinstance(model, HuggingFaceRecognizer):
        lines = [
            "from transformers import pipeline",
            "",
            f'recognizer = pipeline("automatic-speech-recognition", "{name}")',
            'print(recognizer("talk.wav")["text"])',
        ]
    code = "\n".join(lines)
    return f"```python\n{code}\n```\n\nOn the command line: `priormatch transcribe {words}`.{where}"


def limits(model: Model) -> str:
    """The limits of a model."""
    if isinstance(model, NgramPrior):
        return (
            "It models text like its training text, in the same spelling. It treats all words that do not occur there"
            " alike, as improbable. It scores whole hypotheses and does not support shallow fusion."
        )
    if isinstance(model, ConvPrior):
        return (
            "It models text like its training text, in the same spelling. Shallow fusion works only with recognizers"
            " that have the same tokenizer; with others it scores whole hypotheses."
        )
    longest = f"was trained on at most {model.longest_heard:.1f} s" if model.longest_heard else ""
    written = f"writes at most {model.settings.longest_output} {model.tokenizer.unit}s at a time"
    most = written if model.head.limited else ""
    bounds = " and ".join(filter(None, (most, longest))) or "was trained on single utterances"
    return (
        "It fits the voices, rooms, words and spelling of its training data: on other speech it may make far more"
        " errors than on its test sets. Its output can be fluent and still wrong: do not rely on it without checking."
        f" It {bounds}: longer recordings must be cut, as `priormatch transcribe` does."
    )


@dataclass(frozen=True)
class Trained:
    """How a model was trained, on which data (a line each), its score, and the settings."""

    how: str
    data: Sequence[str]
    score: str
    recipe: Mapping[str, Any]


def trained_card(name: str, model: Model, trained: Trained, wanted: CardSettings) -> Card:
    """The card of a newly trained model."""
    card = plain_card(name, model)
    given = {key: value for key, value in plain(wanted).items() if value}
    used = {key: plain(value) for key, value in trained.recipe.items()}
    written = f"normalizer `{normalizer_of_model(model).name}`"
    language = f"language: {wanted.language or 'not set (card.language)'}, {written}"
    listing = yaml.safe_dump(used, sort_keys=False, default_flow_style=None, width=100)
    sections = {
        "Data": "\n".join(f"- {line}" for line in (*trained.data, language)),
        "Results": f"- {trained.score}",
        **card.sections,
        "Made with": made_with(versions()),
        "Settings": f"<details><summary>All of them</summary>\n\n```yaml\n{listing}```\n\n</details>",
    }
    if wanted.license:
        del sections["License"]
    return replace(card, facts=given | card.facts, summary=f"{card.summary} {trained.how}", sections=sections)


def with_license(card: Card, license: str) -> Card:
    """The card with a license, by its name on the Hub, and without the section that asks for one."""
    asks = ("License", "Licence")  # the second in cards of older versions
    sections = {name: text for name, text in card.sections.items() if name not in asks}
    return replace(card, facts=card.facts | {"license": license}, sections=sections)


def made_with(found: Mapping[str, str]) -> str:
    """The date and the versions."""
    others = {name: version for name, version in found.items() if name not in ("priormatch", "commit")}
    commit = f" (commit {found['commit']})" if "commit" in found else ""
    used = [f"priormatch {__version__}{commit}", *(f"{name} {version}" for name, version in others.items())]
    return f"{', '.join(used)}, on {time.strftime('%Y-%m-%d', time.gmtime())}."


def heard(role: str, corpus: Corpus, settings: Settings) -> str:
    """A line about speech: its role, name, duration and number of utterances."""
    names = ", ".join(called(Path(name), settings) for name in corpus.name.split(", "))
    return f"{role}: {names} ({duration_text(3600 * corpus.hours)}, {len(corpus):,} utterances)"


def called(file: Path, settings: Settings) -> str:
    """The name of the data in a file, without its folder; data made by a run has the name of its source."""
    name = file.name.removesuffix(SUFFIX).removesuffix(".txt")
    if file.parent.resolve() != (Path(settings.runs) / settings.name / "data").resolve():
        return name
    if settings.corpus == "demo":
        return f"{name} of the demo corpus"
    sources = {
        "labeled": settings.labeled,
        "unlabeled": settings.unlabeled,
        "topline": settings.topline,
        "text": settings.text,
    }
    return Path(sources.get(name) or name).name.removesuffix(SUFFIX)


def judged(prior: ConvPrior | NgramPrior | HuggingFacePrior, folder: Path | None) -> str:
    """A line about a recognizer's prior: its size, and the name and text in its own card, or its name and commit."""
    if isinstance(prior, HuggingFacePrior):
        form = "" if prior.form == "as_written" else f", text_form {prior.form}"
        name = Path(prior.source).name if Path(prior.source).exists() else prior.source
        return f"prior: {name}, a pretrained language model of {parameters(prior)} parameters{form}"
    card = None if folder is None else read_card(folder)
    amount = size_in_words(prior) if isinstance(prior, NgramPrior) else f"{parameters(prior)} parameters"
    size = f"a language model of {amount}"
    if card is None:
        return f"prior: {size}"
    learned = [line for line in card.sections.get("Data", "").splitlines() if line.startswith(TEXT)]
    return ", ".join(
        [f"prior: {card.title}", size, *(f"trained on {line.removeprefix(TEXT)}" for line in learned)]
    )


def title_of(out: Path, settings: Settings) -> str:
    """The title of the model in a folder; within a run it includes the run's name."""
    out = out.resolve()
    within = out.parent == (Path(settings.runs) / settings.name).resolve()
    return f"{settings.name}-{out.name}" if within else out.name


def leave_card(folder: Path, card: Card) -> None:
    """Write a card into a model folder, unless the existing one was edited; the main process of a job does."""
    if is_main() and not write_card(folder, card):
        say(f"{folder / CARD} has been edited: not changed")


def add_results(models: Mapping[str, Path], results: Mapping[str, Any]) -> None:
    """Add the test results of every system, as in results.json, to the card of its model."""
    for system, folder in models.items():
        card = read_card(folder)
        if card is not None:
            write_card(folder, with_results(card, results["systems"][system], results["notes"]))
        elif (folder / CARD).exists():
            say(f"{folder / CARD} has been edited: add its results yourself")


def with_results(card: Card, tests: Mapping[str, Mapping[str, Any]], notes: Sequence[str]) -> Card:
    """The card with error rates, as a table and as metadata for the Hub, with notes on them."""
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
    lines = [validation, "- on test sets, with greedy search:", "", table, *(f"\n{note}" for note in notes)]
    return replace(
        card,
        facts=card.facts | {"model-index": [{"name": card.title, "results": entries}]},
        sections=card.sections | {"Results": "\n".join(lines)},
    )


def parameters(model: SpeechRecognizer | ConvPrior | HuggingFacePrior) -> str:
    """The number of a model's parameters, in readable form."""
    count = sum(each.numel() for each in model.parameters())
    return f"{count / 1e6:.1f} M" if count >= 1e6 else f"{count / 1e3:.0f} k"
