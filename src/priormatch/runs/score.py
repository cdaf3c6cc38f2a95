"""`priormatch score`: error rates of decoded files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from priormatch.data.batches import cut_text, read_cuts
from priormatch.data.manifest import SUFFIX
from priormatch.device import find_device
from priormatch.errors import UserError
from priormatch.evaluation.perplexity import likelihoods, perplexity
from priormatch.evaluation.references import references_of, with_references
from priormatch.evaluation.transcripts import Transcript, read_transcripts
from priormatch.matching.prior import Prior
from priormatch.runs.results import compare, difference_in_words, rates, wers


def score_files(files: Sequence[Path], references: Path | None, prior: Path | None = None) -> None:
    """Print WER and CER of each file, and how the second compares with the first when there are two.

    A prior adds its perplexity a piece of the hypotheses and of the references.
    """
    texts = references_of(references) if references else None
    decoded = [read_scored(path, texts) for path in files]
    columns = ["utterances", "WER %", "95 %", "CER %"]
    rows = [cells(each) for each in decoded]
    if prior is not None:
        columns += ["perplexity", "reference"]
        for row, pair in zip(rows, perplexities(decoded, prior), strict=True):
            row += [f"{each:.2f}" for each in pair]
    shown = Table()
    shown.add_column("transcripts", overflow="fold")
    for column in columns:
        shown.add_column(column, justify="right", no_wrap=True)
    for path, row in zip(files, rows, strict=True):
        shown.add_row(str(path), *row)
    console = Console()
    console.print(shown)
    if len(decoded) == 2:
        first, second = ({each.id: each for each in transcripts} for transcripts in decoded)
        common = [each for each in first if each in second]
        if not common:
            raise UserError(f"{files[0]} and {files[1]} share no utterance, so they cannot be compared")
        found = compare(wers([first[each] for each in common]), wers([second[each] for each in common]))
        words = difference_in_words(found["difference"], found["interval"], found["p_value"], "the first")
        console.print(
            f"on the {len(common):,} common utterances the second is {words},"
            f" {abs(found['relative']):.1f} % relative",
            highlight=False,
        )


def cells(transcripts: list[Transcript]) -> list[str]:
    """A file's number of utterances and its error rates, for the table."""
    found = rates(wers(transcripts), transcripts)
    low, high = found["wer_interval"]
    return [f"{len(transcripts):,}", f"{found['wer']:.2f}", f"{low:.2f}-{high:.2f}", f"{found['cer']:.2f}"]


def perplexities(decoded: Sequence[list[Transcript]], folder: Path) -> list[tuple[float, float]]:
    """The prior's perplexity a piece of each file's hypotheses and of its references."""
    prior = Prior.load(folder, find_device("auto"))
    pairs = [
        ([each.hypothesis for each in transcripts], [each.reference or "" for each in transcripts])
        for transcripts in decoded
    ]
    scored = likelihoods(prior, [text for pair in pairs for texts in pair for text in texts])
    return [
        (perplexity(scored, hypotheses), perplexity(scored, references)) for hypotheses, references in pairs
    ]


def read_scored(path: Path, references: Mapping[str, str] | None) -> list[Transcript]:
    """Transcripts with what was really said, from the file itself or from given references."""
    transcripts = read_hypotheses(path)
    if references is not None:
        transcripts = with_references(transcripts, references)
    without = [each.id for each in transcripts if each.reference is None]
    if without:
        way_out = "give --references CUTS" if references is None else "give the cuts of that speech"
        raise UserError(
            f"{path}: {len(without)} utterances have no reference, the first is {without[0]}: {way_out}"
        )
    return transcripts


def read_hypotheses(path: Path) -> list[Transcript]:
    """Decoded utterances, or the labels of a manifest of cuts."""
    if not path.name.endswith(SUFFIX):
        return read_transcripts(path)
    labels = [(cut.id, cut_text(cut)) for cut in read_cuts(path)]
    return [Transcript(name, text or "", 0, None, []) for name, text in labels]
