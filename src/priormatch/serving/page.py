"""The page: record or upload, read the transcript, and look into the beams it was taken from."""

from pathlib import Path
from typing import Any

import gradio as gr

from priormatch.errors import UserError
from priormatch.serving.beams import Listener, Say, Visit
from priormatch.serving.views import NO_SPEECH, beam_table, segment_name, told

SWEEP = (60, 3600)  # seconds: how often old recordings are looked for and deleted, and how old they may get
CHOICES = {Say.none: "none", Say.weights: "in the weights", Say.search: "in the search"}
TITLE = """# priormatch
Record or upload speech, at most {minutes:g} minutes or {megabytes} MB, read what was heard, and look into the beam
it was taken from."""


def make_page(listener: Listener, most_megabytes: int) -> gr.Blocks:
    """Lay out the page and say what follows on what."""
    with gr.Blocks(title="priormatch", analytics_enabled=False, delete_cache=SWEEP) as page:
        gr.Markdown(TITLE.format(minutes=listener.most_seconds / 60, megabytes=most_megabytes))
        visit = gr.State(Visit())
        audio = gr.Audio(label="Speech", sources=["upload", "microphone"], type="filepath", buttons=[])
        say = gr.Radio(
            [(label, each.value) for each, label in CHOICES.items()],
            value=Say.weights.value,
            label="The prior's say",
            info="Whether the prior weighs the hypotheses, helps to find them, or neither.",
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
        audio.change(listen, [audio, say], shown, show_progress_on=audio, api_visibility="private")
        gr.on([say.input, chosen.input], look, [visit, say, chosen], shown, api_visibility="private")
    return page


def results(listener: Listener, visit: Visit, say: Say, number: int, progress: gr.Progress) -> list[Any]:
    """The visit and what is shown of it: the transcript or why there is none, a choice of segments, the beam of one."""

    def advance(done: float, total: float) -> None:
        progress((round(done), round(total)), desc="listening", unit="seconds")

    try:
        visit = visit.hearing(say, listener, advance)
    except UserError as error:
        return [visit, told(sentence=f"{error}."), gr.update(visible=False), ""]
    found = visit.heard(say)
    if not found:
        return [visit, "" if found is None else told(sentence=NO_SPEECH), gr.update(visible=False), ""]
    number = min(number, len(found) - 1)
    names = [(segment_name(each), place) for place, each in enumerate(found)]
    return [
        visit,
        told(lines=[each.text for each in found]),
        gr.update(choices=names, value=number, visible=len(found) > 1),
        beam_table(found[number], say, listener.fusion),
    ]
