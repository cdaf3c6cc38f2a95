"""The page: record or upload speech, read the transcript, and inspect the beams it was taken from."""

from pathlib import Path
from typing import Any

import gradio as gr

from priormatch.errors import UserError
from priormatch.serve.beams import PriorUse, Transcriber, Visit
from priormatch.serve.views import NO_SPEECH, beam_table, segment_name, sentence, transcript

SWEEP = (60, 3600)  # seconds: how often old recordings are deleted, and their maximum age
CHOICES = {PriorUse.none: "none", PriorUse.weights: "in the weights", PriorUse.search: "in the search"}
FORGET = "() => { document.getElementById('refused').textContent = '' }"


def make_page(transcriber: Transcriber, head: str) -> gr.Blocks:
    """Lay out the page below its head and connect its events."""
    with gr.Blocks(title="priormatch", analytics_enabled=False, delete_cache=SWEEP) as page:
        gr.HTML(head, padding=False)
        visit = gr.State(Visit())
        audio = gr.Audio(label="Speech", sources=["upload", "microphone"], type="filepath", buttons=[])
        use = gr.Radio(
            [(label, each.value) for each, label in CHOICES.items()],
            value=PriorUse.weights.value,
            label="Where the prior is used",
            info="In the weights: the prior weights the recognizer's hypotheses and makes its own choice among them. In"
            " the search: it helps to find the transcript.",
            visible=transcriber.prior is not None,
        )
        transcripts = gr.HTML(padding=False)
        chosen = gr.Dropdown([], label="Segment", visible=False)
        beam = gr.HTML(padding=False)

        def transcribe(path: str | None, use: str, progress: gr.Progress = gr.Progress()) -> list[Any]:
            return results(transcriber, Visit(Path(path) if path else None), PriorUse(use), 0, progress)

        def show(
            visit: Visit, use: str, chosen: int | None, progress: gr.Progress = gr.Progress()
        ) -> list[Any]:
            return results(transcriber, visit, PriorUse(use), chosen or 0, progress)

        shown = [visit, transcripts, chosen, beam]
        audio.change(None, js=FORGET, api_visibility="private")
        audio.change(transcribe, [audio, use], shown, show_progress_on=audio, api_visibility="private")
        gr.on([use.input, chosen.input], show, [visit, use, chosen], shown, api_visibility="private")
    return page


def results(
    transcriber: Transcriber, visit: Visit, use: PriorUse, number: int, progress: gr.Progress
) -> list[Any]:
    """Return the visit and what is shown: the transcript or why there is none, the segments, the beam of one."""

    def advance(done: float, total: float) -> None:
        progress((round(done), round(total)), desc="transcribing", unit="seconds")

    try:
        visit = visit.decoded(use, transcriber, advance)
    except UserError as error:
        return [visit, sentence(f"{error}."), gr.update(visible=False), ""]
    found = visit.result(use)
    if not found:
        return [visit, "" if found is None else sentence(NO_SPEECH), gr.update(visible=False), ""]
    number = min(number, len(found) - 1)
    names = [(segment_name(each), place) for place, each in enumerate(found)]
    return [
        visit,
        transcript(visit, use),
        gr.update(choices=names, value=number, visible=len(found) > 1),
        beam_table(found[number], use, transcriber.fusion),
    ]
