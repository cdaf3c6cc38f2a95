"""The page: record or upload speech, read the transcript, and inspect the beams it was taken from."""

from pathlib import Path
from typing import Any

import gradio as gr

from priormatch.errors import UserError
from priormatch.serve.beams import Listener, Say, Visit
from priormatch.serve.views import NO_SPEECH, beam_table, segment_name, sentence, told

SWEEP = (60, 3600)  # seconds: how often old recordings are deleted, and their maximum age
CHOICES = {Say.none: "none", Say.weights: "in the weights", Say.search: "in the search"}
FORGET = "() => { document.getElementById('refused').textContent = '' }"


def make_page(listener: Listener, head: str) -> gr.Blocks:
    """Lay out the page below its head and connect its events."""
    with gr.Blocks(title="priormatch", analytics_enabled=False, delete_cache=SWEEP) as page:
        gr.HTML(head, padding=False)
        visit = gr.State(Visit())
        audio = gr.Audio(label="Speech", sources=["upload", "microphone"], type="filepath", buttons=[])
        say = gr.Radio(
            [(label, each.value) for each, label in CHOICES.items()],
            value=Say.weights.value,
            label="The prior's say",
            info="In the weights: the prior weighs the recognizer's hypotheses and makes its own choice among them. In"
            " the search: it helps to find the transcript.",
            visible=listener.prior is not None,
        )
        heard = gr.HTML(padding=False)
        chosen = gr.Dropdown([], label="Segment", visible=False)
        beam = gr.HTML(padding=False)

        def listen(path: str | None, say: str, progress: gr.Progress = gr.Progress()) -> list[Any]:
            return results(listener, Visit(Path(path) if path else None), Say(say), 0, progress)

        def look(
            visit: Visit, say: str, chosen: int | None, progress: gr.Progress = gr.Progress()
        ) -> list[Any]:
            return results(listener, visit, Say(say), chosen or 0, progress)

        shown = [visit, heard, chosen, beam]
        audio.change(None, js=FORGET, api_visibility="private")
        audio.change(listen, [audio, say], shown, show_progress_on=audio, api_visibility="private")
        gr.on([say.input, chosen.input], look, [visit, say, chosen], shown, api_visibility="private")
    return page


def results(listener: Listener, visit: Visit, say: Say, number: int, progress: gr.Progress) -> list[Any]:
    """Return the visit and what is shown: the transcript or why there is none, the segments, the beam of one."""

    def advance(done: float, total: float) -> None:
        progress((round(done), round(total)), desc="transcribing", unit="seconds")

    try:
        visit = visit.hearing(say, listener, advance)
    except UserError as error:
        return [visit, sentence(f"{error}."), gr.update(visible=False), ""]
    found = visit.heard(say)
    if not found:
        return [visit, "" if found is None else sentence(NO_SPEECH), gr.update(visible=False), ""]
    number = min(number, len(found) - 1)
    names = [(segment_name(each), place) for place, each in enumerate(found)]
    return [
        visit,
        told(found, say),
        gr.update(choices=names, value=number, visible=len(found) > 1),
        beam_table(found[number], say, listener.fusion),
    ]
