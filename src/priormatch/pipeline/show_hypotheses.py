"""`priormatch hypotheses`: the weighted beams of local prior matching for some utterances, as tables or JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from priormatch.config import Settings
from priormatch.data.corpus import Corpus, read_cuts
from priormatch.device import find_device
from priormatch.errors import UserError
from priormatch.matching.hypotheses import Hypothesis, Inspection, inspect
from priormatch.matching.lpm import keep_all
from priormatch.pipeline.match import heard_before, weighing_of
from priormatch.pipeline.work import thin
from priormatch.recognizers.decode import note_rescoring
from priormatch.recognizers.load import load_prior, load_recognizer
from priormatch.recognizers.prior import ConvPrior
from priormatch.scoring.alignment import AlignedWord
from priormatch.scoring.transcripts import read_transcripts

STYLES = {"equal": "", "substitute": "red", "insert": "magenta", "delete": "blue"}
LEGEND = "reference→hypothesis: a substitution; +word: an insertion; -word: a deletion"


def inspect_files(
    model: Path,
    prior: Path,
    cuts: Path,
    settings: Settings,
    *,
    lengths: Path | None,
    beam_size: int,
    ids: Sequence[str],
    count: int,
) -> list[Inspection]:
    """The beams of the utterances with the given ids, or of a fixed sample of `count` utterances (0 for all)."""
    device, matching = find_device(settings.device), settings.matching
    recognizer = load_recognizer(model, device, settings.pretrained)
    judge = load_prior(prior, device, settings.prior.text_form)
    if matching.hypotheses == "asr_lm":
        note_rescoring(recognizer, judge)
    heard = read_transcripts(lengths) if lengths else []
    known = {each.id: each.pieces for each in heard}
    corpus = chosen(cuts, ids, count, settings)
    if lengths and not any(cut.id in known for cut in corpus.cuts):
        raise UserError(f"{lengths} has no lengths of these utterances: make it with `priormatch decode`")
    contexts: dict[str, str] = {}
    if matching.context:
        if isinstance(judge, ConvPrior):
            judge.require_context()
        contexts = heard_before(Corpus.load(cuts, settings.audio), heard)
    weighing = weighing_of(settings, known, contexts)
    if not lengths:
        weighing = replace(weighing, keep=keep_all)
    return inspect(recognizer, judge, corpus, beam_size, weighing)


def chosen(cuts: Path, ids: Sequence[str], count: int, settings: Settings) -> Corpus:
    """The utterances to inspect."""
    if not ids:
        return thin(Corpus.load(cuts, settings.audio), count)
    by_id = {cut.id: cut for cut in read_cuts(cuts)}
    if unknown := [each for each in ids if each not in by_id]:
        raise UserError(f"{cuts} contains no utterance {unknown[0]}: provide ids of its cuts")
    return Corpus([by_id[each] for each in dict.fromkeys(ids)], settings.audio, str(cuts))


def print_json(inspections: Sequence[Inspection]) -> None:
    """Print one JSON object per line on standard output."""
    for each in inspections:
        print(json.dumps(asdict(each), ensure_ascii=False))


def show(inspections: Sequence[Inspection], console: Console | None = None) -> None:
    """Print a table for each utterance on standard output."""
    console = console or Console()
    for each in inspections:
        console.print(heading(each), highlight=False)
        console.print(table(each))
    if any(each.reference is not None for each in inspections):
        console.print(LEGEND, highlight=False, style="dim")


def heading(inspection: Inspection) -> Text:
    """The utterance id, with its reference if known."""
    text = Text(inspection.id, style="bold")
    facts = []
    if inspection.reference is not None:
        facts.append(f"reference, log p_y {inspection.reference_log_prior:.2f}: {inspection.reference}")
    if inspection.reference_length:
        facts.append(f"reference length {inspection.reference_length}")
    if not inspection.ended:
        facts.append("the search found no end of sentence")
    return text.append("".join(f"\n  {fact}" for fact in facts), style="not bold")


def table(inspection: Inspection) -> Table:
    """A table of the hypotheses of an utterance."""
    shown = Table()
    for column in ("rank", "log q", "log p_y", "weight"):
        shown.add_column(column, justify="right")
    shown.add_column("hypothesis", overflow="fold")
    if any(each.dropped for each in inspection.hypotheses):
        shown.add_column("dropped", overflow="fold")
    for each in inspection.hypotheses:
        figures = (str(each.rank), f"{each.log_q:.2f}", f"{each.log_prior:.2f}", f"{each.weight:.4f}")
        shown.add_row(*figures, marked(each), *([each.dropped or ""] if len(shown.columns) > 5 else []))
    return shown


def marked(hypothesis: Hypothesis) -> Text:
    """A hypothesis with its errors marked by colors and signs."""
    if hypothesis.words is None:
        return Text(hypothesis.text)
    return Text(" ").join(Text(sign(word), style=STYLES[word.kind]) for word in hypothesis.words)


def sign(word: AlignedWord) -> str:
    """A word with the sign of its error: see LEGEND."""
    return {
        "equal": word.hypothesis,
        "substitute": f"{word.reference}→{word.hypothesis}",
        "insert": f"+{word.hypothesis}",
        "delete": f"-{word.reference}",
    }[word.kind]
