"""`priormatch tune`: find fusion settings for a search with the prior on validation sets."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from priormatch.config import FusionSettings, Settings
from priormatch.data.corpus import Corpus
from priormatch.decoding.tuning import (
    GRID,
    MATCHING_SHARE,
    Errors,
    Trials,
    centered,
    descend,
    finite,
    grid_of,
    starts_from,
    without_prior,
    write_tuned,
)
from priormatch.device import find_device
from priormatch.distributed import from_all, is_main
from priormatch.pipeline.recipe import recipe_of_reading, recipe_of_writing
from priormatch.pipeline.work import load_validation
from priormatch.progress import Meter, say
from priormatch.recognizers.decode import (
    GREEDY,
    Encoded,
    Search,
    check_share,
    comparable,
    encode,
    error_rates,
    everyones,
    fitting,
    mean_rate,
    note_rescoring,
    search_with_prior,
    takes_part,
    transcribe,
)
from priormatch.recognizers.load import load_prior, load_recognizer
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.runs.stage import digest, fingerprint

GREEDY_INSTEAD = {
    False: "decode without --prior",
    True: "let the proposal search alone (matching.hypotheses=asr)",
}
"""What to do, by whether values are for matching, if no search with a beam is as good as greedy decoding."""


def tune(
    model: Path,
    prior: Path,
    validation: Mapping[str, Path],
    settings: Settings,
    out: Path,
    for_matching: bool = False,
) -> None:
    """Find the fusion settings with the lowest mean WER on validation sets, from settings.fusion and other starts.

    With `for_matching`, only `centered` scores are tried, with the limits of settings.fusion and the usual ones. Other
    scores without a bonus make hypotheses end early. With a bonus for each piece, words of many pieces that the prior
    predicts displace others. Neither shows much in the WER, but a model that learns from such hypotheses does it more
    and more. The LM weight is the best one times `MATCHING_SHARE`. Values that are worse than no prior are never taken.
    Every set is encoded once. Trials are recorded in `OUT.trials.jsonl`, and the same call resumes from it.
    """
    device = find_device(settings.device)
    recognizer = load_recognizer(model, device, settings.pretrained)
    judge = load_prior(prior, device, settings.prior.text_form)
    note_rescoring(recognizer, judge)
    limited = recognizer.head.limited and takes_part(judge, recognizer)
    sets = load_validation(validation, settings)
    sizes = {name: len(corpus) for name, corpus in sets.items()}
    reading = [*recipe_of_reading(settings.prior).values(), *recipe_of_writing(settings.pretrained).values()]
    key = digest([sizes, *map(fingerprint, (model, prior, *validation.values())), *reading])
    trials = Trials(out.with_name(f"{out.name}.trials.jsonl"), key)

    encoded = {name: encode_all(recognizer, corpus) for name, corpus in sets.items()}
    greedy = errors_of(recognizer, encoded, GREEDY)
    say(f"greedy, without the prior: {greedy}")
    with Meter("tuning, utterances decoded", None) as meter:

        def measure(fusion: FusionSettings) -> Errors:
            errors = errors_of(recognizer, encoded, search_with_prior(judge, fusion), meter.advance)
            fewest = min([errors, *trials.found.values()])
            meter.advance(0, f"{len(trials.found) + 1} trials, best WER {fewest.wer:.2f} %")
            return errors

        measured = trials.measured(measure)
        if for_matching:
            weights = [weight for weight in GRID["lm_weight"] if weight > 0]
            best = min(centered(settings.fusion, weights, limited), key=measured)
            best = replace(best, lm_weight=round(MATCHING_SHARE * best.lm_weight, 3))
        else:
            best = descend(measured, starts_from(settings.fusion, limited), grid_of(limited))
        without = min(without_prior(settings.fusion, for_matching), key=measured)
        tuned, none = measured(best), measured(without)
        best = without if none < tuned else best
    about = {
        "for": "matching" if for_matching else "decoding",
        "model": str(model),
        "prior": str(prior),
        "validation": {name: str(path) for name, path in validation.items()},
        "utterances": sizes,
        "greedy": greedy._asdict(),
        "without_prior": none._asdict(),
        "with_prior": min(none, tuned)._asdict(),
    }
    if is_main():
        write_tuned(out, best, about)
    say_found(out, best, greedy, none, tuned, for_matching)


def say_found(
    out: Path, best: FusionSettings, greedy: Errors, none: Errors, tuned: Errors, for_matching: bool
) -> None:
    """Report the values taken, and the error rates greedily, without the prior, and with the best values."""
    chosen = {
        name: value if isinstance(value, bool) else f"{value:g}" for name, value in finite(best).items()
    }
    values = ", ".join(f"{name}={value}" for name, value in chosen.items())
    if none < tuned:
        say(
            f"with the prior {tuned} at best, without it {none}: the prior is left out of the search (lm_weight=0)"
        )
    say(f"{out}: {'without' if none < tuned else 'with'} the prior {min(none, tuned)}; {values}")
    if greedy < min(none, tuned):
        say(f"greedy decoding without the prior is better ({greedy}): {GREEDY_INSTEAD[for_matching]}")


def encode_all(model: SpeechRecognizer, corpus: Corpus) -> list[Encoded]:
    """Encode a whole corpus, or this process's part of it, into CPU memory."""
    batches, corpus = [], fitting(corpus, model)
    with Meter(f"encoding {corpus.name}", len(corpus)) as meter:
        for batch in encode(model, corpus.own_part):
            batches.append(batch.to("cpu"))
            meter.advance(len(batch.ids))
    check_share(len(corpus) - sum(from_all(sum(len(batch.ids) for batch in batches))), corpus)
    return batches


def errors_of(
    model: SpeechRecognizer,
    sets: Mapping[str, list[Encoded]],
    search: Search,
    advance: Callable[[int], None] = lambda _: None,
) -> Errors:
    """The mean error rates of a search over the sets."""
    rates = {}
    for name, batches in sets.items():
        transcripts = []
        for batch in batches:
            told = transcribe(model, batch, search)
            transcripts += [comparable(each, model.tokenizer) for each in told]
            advance(len(batch.ids))
        rates[name] = error_rates(everyones(transcripts))
    return Errors(mean_rate(rates, "wer"), mean_rate(rates, "cer"))
