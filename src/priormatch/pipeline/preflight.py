"""The checks of `priormatch doctor` that a run makes before it trains."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from priormatch.config import Settings
from priormatch.device import find_device, memory_of
from priormatch.doctor.findings import Finding, guarded
from priormatch.doctor.machine import GB
from priormatch.doctor.machine import findings as machine_findings
from priormatch.doctor.recipe import data_findings, settings_findings
from priormatch.errors import UserError
from priormatch.pipeline.estimate import NUMBER, numbers_in, weights_of
from priormatch.progress import count_text, say
from priormatch.recognizers.hf_folder import is_pretrained, pretrained, stored_elements
from priormatch.recognizers.hub import model_folder
from priormatch.runs.stage import Decision


def require_sound(settings: Settings, found: Sequence[Decision], force: bool) -> None:
    """Report warnings and problems of what a run is about to make, and stop on problems unless forced.

    The data are checked before they are converted, the machine before anything is made; a run that only resumes or
    reuses checks nothing.
    """
    new = [each.folder.name for each in found if each.place is None]
    if not new:
        return
    problems = 0
    for finding in findings(settings, with_data="data" in new):
        if finding.status != "ok":
            say(str(finding))
        problems += finding.status == "problem"
    if problems and force:
        say(f"continuing despite {count_text(problems, 'problem')}, because of --force")
    elif problems:
        raise UserError(
            f"{count_text(problems, 'problem')} found before the run, see above; nothing was changed: fix"
            f" {'it' if problems == 1 else 'them'}, or continue with --force"
        )


def findings(settings: Settings, with_data: bool) -> Iterator[Finding]:
    """Check the machine, its memory and the settings, and if wanted the data."""
    yield from guarded(machine_findings(settings.device, Path(settings.runs)))
    yield memory_finding(settings, memory_of(find_device(settings.device)))
    yield from settings_findings(settings)
    if with_data:
        yield from guarded(data_findings(settings))


def memory_finding(settings: Settings, there: int) -> Finding:
    """Check whether the models of matching and the optimizer fit into memory, without any speech."""
    needed = least_memory(settings)
    what = f"the models and the optimizer take {needed / GB:.1f} GB, of {there / GB:.1f} GB of memory"
    if needed < there:
        return Finding("ok", what)
    return Finding(
        "problem", what, "use smaller models (model.*, prior.model.*), or a machine with more memory"
    )


def least_memory(settings: Settings) -> int:
    """The bytes of the weights in matching: online model with gradient and optimizer, proposal, and prior."""
    recognizer = weights_of("supervised", settings)
    trained = recognizer if settings.pretrained.train == "full" else 0  # copies share the others
    prior = weights_of_prior(settings)
    return NUMBER * (recognizer + trained * (2 + numbers_in(settings.matching.optimizer)) + prior)


def weights_of_prior(settings: Settings) -> int:
    """The number of weights of the prior, as far as it is known; that of n-grams depends on the text."""
    if settings.prior.pretrained:
        folder = model_folder(settings.prior.pretrained)
        return stored_elements(pretrained(folder)) if is_pretrained(folder) else 0
    return weights_of("prior", settings) if settings.prior.kind == "conv" else 0
