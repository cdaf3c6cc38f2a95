"""`priormatch score`: error rates of decoded files."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from priormatch.data.batches import cut_text, read_cuts
from priormatch.errors import UserError
from priormatch.evaluation.transcripts import Transcript, read_transcripts
from priormatch.runs.results import compare, difference_in_words, rates, wers


def score_files(files: Sequence[Path], references: Path | None) -> None:
    """Print WER and CER of each file, and how the second compares with the first when there are two."""
    texts = {cut.id: cut_text(cut) or "" for cut in read_cuts(references)} if references else {}
    decoded = [with_references(path, texts) for path in files]
    shown = Table()
    for column in ("transcripts", "utterances", "WER %", "95 %", "CER %"):
        shown.add_column(column, justify="left" if column == "transcripts" else "right", overflow="fold")
    for path, transcripts in zip(files, decoded, strict=True):
        found = rates(wers(transcripts), transcripts)
        low, high = found["wer_interval"]
        shown.add_row(
            str(path),
            f"{len(transcripts):,}",
            f"{found['wer']:.2f}",
            f"{low:.2f}-{high:.2f}",
            f"{found['cer']:.2f}",
        )
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


def with_references(path: Path, texts: dict[str, str]) -> list[Transcript]:
    """Transcripts with what was really said, from the file itself or from given references."""
    transcripts = read_transcripts(path)
    if texts:
        unknown = [each.id for each in transcripts if each.id not in texts]
        if unknown:
            raise UserError(f"{path}: {len(unknown)} utterances have no reference, the first is {unknown[0]}")
        transcripts = [replace(each, reference=texts[each.id]) for each in transcripts]
    without = [each.id for each in transcripts if each.reference is None]
    if without:
        raise UserError(
            f"{path}: {len(without)} utterances have no reference, the first is {without[0]}: give --references CUTS"
        )
    return transcripts
