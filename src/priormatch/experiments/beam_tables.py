"""Table 1: beams of two utterances with the prior's scores, before and after matching."""

from pathlib import Path

from priormatch.data.batches import Corpus
from priormatch.device import find_device
from priormatch.experiments.layout import Cells, markdown
from priormatch.experiments.paper import BEAMS, MISSING, read_table
from priormatch.experiments.study import Study
from priormatch.experiments.systems import matched
from priormatch.matching.hypotheses import Inspection, inspect
from priormatch.matching.lpm import Weighing
from priormatch.pipeline.show_hypotheses import LEGEND, marked
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer

UTTERANCES = 2
SHOWN = matched()  # shown together with the supervised model
PAPERS = "The paper's beams (word pieces)"


def beams(study: Study) -> Cells:
    """The table: the reference, and each model's hypotheses with marked errors, log q, log p_y and weights."""
    device = find_device(study.settings.device)
    models = {"Supervised": study.models.supervised(), "LPM": study.train(SHOWN)}
    prior, size = ConvPrior.load(study.models.prior(), device), study.settings.matching.beam_size
    corpus = some_of(study.data.validation["dev-other"], study)
    found = {
        name: inspect(SpeechRecognizer.load(model, device), prior, corpus, size, Weighing())
        for name, model in models.items()
    }
    lines = []
    for number in range(len(corpus)):
        first = next(iter(found.values()))[number]
        reference = f"{first.reference_log_prior:.2f}" if first.reference_log_prior is not None else ""
        lines.append([str(number + 1), "Reference", "", "", reference, "", first.reference or ""])
        for name, inspections in found.items():
            lines += of_model(str(number + 1), name, inspections[number])
    return [["utterance", "model", "rank", "log q(y)", "log p(y)", "weight", "hypothesis"], *lines]


def of_model(number: str, model: str, inspection: Inspection) -> Cells:
    """The rows of one beam."""
    return [
        [
            number,
            model,
            str(each.rank),
            f"{each.log_q:.2f}",
            f"{each.log_prior:.2f}",
            f"{each.weight:.3f}",
            marked(each).plain,
        ]
        for each in inspection.hypotheses
    ]


def papers_beams() -> Cells:
    """The table of the paper."""
    rows = read_table(BEAMS)
    body = [["" if value == MISSING else value for value in row.values()] for row in rows]
    return [["utterance", "model", "rank", "log p(y)", "hypothesis"], *body]


def sections(papers: Cells) -> list[str]:
    """The sections below our beams: how errors are marked, and the paper's beams verbatim."""
    head, *body = papers
    verbatim = [[*line, f"`{pieces}`"] for *line, pieces in body]
    return [f"{LEGEND}.\n", f"## {PAPERS}\n\n{markdown([head, *verbatim])}"]


def some_of(cuts: Path, study: Study) -> Corpus:
    """The first utterances of a set that are near the median duration."""
    corpus = Corpus.load(cuts, study.settings.audio, transcribed=True)
    middle = sorted(corpus.durations)[len(corpus) // 2]
    near = [cut for cut in corpus.cuts if 0.75 * middle <= cut.duration <= 1.5 * middle]
    return Corpus(near[:UTTERANCES], corpus.audio, corpus.name)
