"""The verbs `prepare`, which converts corpora and text, `check`, which finds bad audio, and `pack`, which copies it."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from priormatch.cli.options import Force, Json, Out
from priormatch.config import LanguageSettings, NormalizerKind
from priormatch.json_text import to_json

prepare = typer.Typer(
    help="Convert corpora to manifests of cuts, and text to sentences.", no_args_is_help=True
)

Verify = Annotated[
    bool, typer.Option("--verify", help="Decode every file completely instead of reading only its header.")
]
BadShare = Annotated[
    float,
    typer.Option(
        "--max-bad-share",
        help="Stop if a larger share of the utterances is unusable; a single one never stops it.",
    ),
]
Manifest = Annotated[Path, typer.Option("--out", help="Manifest to write, NAME.jsonl.gz.")]
Normalizer = Annotated[
    NormalizerKind,
    typer.Option(
        "--normalizer", help="Text normalizer: unicode for languages other than English; turkic for ı and İ."
    ),
]
Alphabet = Annotated[
    str,
    typer.Option(
        "--alphabet",
        help="Allowed letters; text with other letters is left out. Default: all letters that occur.",
    ),
]
Segment = Annotated[
    float,
    typer.Option("--segment", help="Cut untranscribed audio longer than this many seconds at its pauses."),
]


@prepare.command()
def librispeech(
    folder: Annotated[Path, typer.Argument(help="The unpacked corpus.")],
    *,
    out: Out,
    part: Annotated[
        list[str] | None, typer.Option("--part", help="A subset, such as dev-clean; all by default.")
    ] = None,
    verify: Verify = False,
    max_bad_share: BadShare = 0.05,
    overwrite: Force = False,
    as_json: Json = False,
) -> None:
    """Prepare LibriSpeech, or a corpus with the same layout.

    Example: priormatch prepare librispeech LibriSpeech --out data
    """
    from priormatch.prepare.corpora import prepare_librispeech

    said(
        prepare_librispeech(
            folder, out, part or (), verify=verify, max_bad_share=max_bad_share, overwrite=overwrite
        ),
        as_json,
    )


@prepare.command()
def librilight(
    folder: Annotated[
        Path, typer.Argument(help="The unpacked corpus: small, medium or large, or their parent.")
    ],
    *,
    out: Out,
    longest: Annotated[float, typer.Option("--longest", help="Maximum segment length in seconds.")] = 36.0,
    part: Annotated[
        list[str] | None, typer.Option("--part", help="A subset, such as small; all by default.")
    ] = None,
    verify: Verify = False,
    max_bad_share: BadShare = 0.05,
    overwrite: Force = False,
    as_json: Json = False,
) -> None:
    """Prepare Libri-Light as released: long chapters, cut by voice activity.

    Example: priormatch prepare librilight libri-light --out data
    """
    from priormatch.prepare.corpora import prepare_librilight

    said(
        prepare_librilight(
            folder,
            out,
            longest,
            parts=part or (),
            verify=verify,
            max_bad_share=max_bad_share,
            overwrite=overwrite,
        ),
        as_json,
    )


@prepare.command()
def audio(
    source: Annotated[
        Path,
        typer.Argument(
            help="A folder of audio, a table, a Kaldi folder, a NeMo or Lhotse manifest, or a Hugging Face dataset."
        ),
    ],
    *,
    out: Manifest,
    normalizer: Normalizer = "english",
    alphabet: Alphabet = "",
    segment: Segment = 0.0,
    audio_column: Annotated[
        str,
        typer.Option(
            "--audio-column",
            help="Column of a table or dataset with the audio, if it is not detected.",
        ),
    ] = "",
    text_column: Annotated[str, typer.Option("--text-column", help="Column with the transcripts.")] = "",
    max_bad_share: BadShare = 0.05,
    overwrite: Force = False,
    as_json: Json = False,
) -> None:
    """Prepare your own audio, with or without transcripts; the format is detected.

    Example: priormatch prepare audio recordings --out data/recordings.jsonl.gz --segment 20
    """
    from priormatch.config import AudioSettings
    from priormatch.data.corpus import read_cuts
    from priormatch.data.normalizer import normalizer_of
    from priormatch.prepare.overview import overview
    from priormatch.prepare.own import prepare_own
    from priormatch.prepare.source import Intake

    intake = Intake(normalizer_of(LanguageSettings(normalizer, alphabet)), segment=segment)
    prepare_own(
        source,
        out,
        intake,
        audio_column=audio_column,
        text_column=text_column,
        max_bad_share=max_bad_share,
        overwrite=overwrite,
    )
    said({out.name: out}, True) if as_json else print(
        f"{out}: {overview(read_cuts(out), intake.normalizer, AudioSettings(segment=segment))}"
    )


@prepare.command()
def text(
    files: Annotated[
        list[Path],
        typer.Argument(help="Text (.txt, .gz, .xz), folders of it, or cuts for their transcripts."),
    ],
    *,
    out: Annotated[Path, typer.Option("--out", help="File of sentences to write.")],
    exclude_books: Annotated[
        Path | None,
        typer.Option(
            "--exclude-books", help="Book ids to leave out, one per line, or LibriSpeech's BOOKS.TXT."
        ),
    ] = None,
    cuts: Annotated[
        list[Path] | None, typer.Option("--cuts", help="Cuts whose transcripts should not be in the text.")
    ] = None,
    drop_overlap: Annotated[
        bool, typer.Option("--drop-overlap", help="Drop sentences that overlap with the transcripts.")
    ] = False,
    lines_are_sentences: Annotated[
        bool, typer.Option("--lines-are-sentences", help="Each line is already a sentence.")
    ] = False,
    normalizer: Normalizer = "english",
    alphabet: Alphabet = "",
    overwrite: Force = False,
    as_json: Json = False,
) -> None:
    """Prepare text for the prior: split into sentences, normalized, compared with transcripts.

    Example: priormatch prepare text corpus --exclude-books BOOKS.TXT --cuts data/dev-clean.jsonl.gz --out data/text.txt
    """
    from priormatch.data.normalizer import normalizer_of
    from priormatch.data.text_files import prepare_text, read_book_ids
    from priormatch.pipeline.work import transcripts_of

    books = read_book_ids(exclude_books) if exclude_books else ()
    spoken = [sentence for path in cuts or [] for sentence in transcripts_of(path)]
    report = prepare_text(
        files,
        out,
        books,
        spoken,
        drop_overlap=drop_overlap,
        lines_are_sentences=lines_are_sentences,
        overwrite=overwrite,
        normalizer=normalizer_of(LanguageSettings(normalizer, alphabet)),
    )
    print(to_json(report) if as_json else report)


@prepare.command()
def split(
    cuts: Annotated[list[Path], typer.Argument(help="Manifests of cuts, such as those of a whole corpus.")],
    *,
    ids: Annotated[Path, typer.Option("--ids", help="File of utterance ids, one per line.")],
    out: Manifest,
    no_text: Annotated[bool, typer.Option("--no-text", help="Leave out the transcripts.")] = False,
    overwrite: Force = False,
    as_json: Json = False,
) -> None:
    """Write the cuts whose ids are listed, for experiments on fixed splits.

    Example: priormatch prepare split data/dev-clean.jsonl.gz --ids dev.ids --out data/dev.jsonl.gz
    """
    from priormatch.config import AudioSettings
    from priormatch.data.normalizer import normalizer_of
    from priormatch.prepare.overview import overview
    from priormatch.prepare.split import write_split

    written = write_split(cuts, ids, out, no_text=no_text, overwrite=overwrite)
    said({out.name: out}, True) if as_json else print(
        f"{out}: {overview(written, normalizer_of(LanguageSettings()), AudioSettings())}"
    )


@prepare.command("demo")
def prepare_demo_corpus(
    *,
    out: Out,
    seed: Annotated[int, typer.Option("--seed", help="Random seed of the sentences, voices and noise.")] = 0,
    as_json: Json = False,
) -> None:
    """Generate the demo corpus with espeak-ng.

    Example: priormatch prepare demo --out data/demo
    """
    from priormatch.prepare.demo import prepare_demo

    prepare_demo(out, seed)
    said(manifests_in(out), as_json)


@prepare.command("synthetic")
def prepare_synthetic_corpus(
    *,
    text: Annotated[
        Path,
        typer.Option("--text", help="Text for the speech and for the prior, one sentence per line."),
    ],
    out: Out,
    labeled: Annotated[float, typer.Option("--labeled", help="Hours of labeled speech.")] = 9.0,
    unlab_clean: Annotated[
        float, typer.Option("--unlab-clean", help="Hours of unlabeled speech in clean voices.")
    ] = 18.0,
    unlab_other: Annotated[
        float, typer.Option("--unlab-other", help="Hours of unlabeled speech in other voices.")
    ] = 18.0,
    dev: Annotated[float, typer.Option("--dev", help="Hours of dev-clean, and of dev-other.")] = 0.75,
    test: Annotated[float, typer.Option("--test", help="Hours of test-clean, and of test-other.")] = 0.75,
    text_validation: Annotated[
        int, typer.Option("--text-validation", help="Validation sentences for the prior.")
    ] = 2000,
    shortest: Annotated[
        int, typer.Option("--shortest", help="Minimum number of words in a spoken sentence.")
    ] = 3,
    longest: Annotated[
        int, typer.Option("--longest", help="Maximum number of words in a spoken sentence.")
    ] = 35,
    seed: Annotated[int, typer.Option("--seed", help="Random seed of the passages, speakers and noise.")] = 0,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, help="Recordings to synthesize in parallel. Default: one per core."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Generate a corpus like LibriSpeech from text; espeak-ng reads it in clean and other voices.

    Example: priormatch prepare synthetic --text books.txt.xz --out data/synthetic
    """
    from priormatch.data.text_files import find_text_files
    from priormatch.prepare.synthetic import SyntheticOptions, prepare_synthetic
    from priormatch.prepare.synthetic_speech import VERSION
    from priormatch.runs.stage import Stage

    files = find_text_files([text])
    options = SyntheticOptions(
        labeled, unlab_clean, unlab_other, dev, test, text_validation, shortest, longest, seed
    )
    with Stage(out, {"version": VERSION, "options": options}, {"text": text}).work() as todo:
        if todo:
            prepare_synthetic(files, out, options, jobs)
    if todo or as_json:
        said(manifests_in(out), as_json)


def check(
    cuts: Annotated[Path, typer.Argument(help="Manifest of the cuts.")],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Manifest of the good utterances. Default: CUTS-good.jsonl.gz next to CUTS."
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, help="Number of decoding processes. Default: one per core."),
    ] = None,
    overwrite: Force = False,
    as_json: Json = False,
) -> None:
    """Decode all audio of a manifest to find bad utterances: truncated, undecodable, mis-declared, silent, clipped.

    The good utterances are written to a manifest, and the ids of the bad ones, with reasons, to a file next to it. If
    interrupted, the command resumes. The exit code is 1 if anything is bad.

    Example: priormatch check data/train.jsonl.gz --out data/train-good.jsonl.gz
    """
    from priormatch.distributed import is_main
    from priormatch.pipeline.check_audio import check as check_all
    from priormatch.pipeline.check_audio import cores

    found = check_all(cuts, out, jobs or cores(), overwrite)
    if is_main():
        print(to_json(found.as_json()) if as_json else found)
    if found.bad:
        raise SystemExit(1)


def pack(
    cuts: Annotated[Path, typer.Argument(help="Manifest of the cuts.")],
    *,
    out: Out,
    max_bad_share: BadShare = 0.05,
    as_json: Json = False,
) -> None:
    """Store the audio of cuts in a few large 16-bit WAV files; training reads these fastest.

    Example: priormatch pack data/train-clean-360.jsonl.gz --out packed/train-clean-360
    """
    from priormatch.data.corpus import read_cuts
    from priormatch.data.pack import SHARD_SAMPLES
    from priormatch.data.pack import pack as pack_cuts
    from priormatch.runs.stage import Stage

    found, name = read_cuts(cuts), cuts.name.removesuffix(".gz").rpartition(".")[0]
    with Stage(out, {"shard_samples": SHARD_SAMPLES}, {"cuts": cuts}).work() as todo:
        if todo:
            pack_cuts(found, out, name, max_bad_share=max_bad_share)
    if todo or as_json:
        said(manifests_in(out), as_json)


def manifests_in(folder: Path) -> dict[str, Path]:
    """The manifests in a folder by name, without the suffix."""
    return dict(sorted((path.name.removesuffix(".jsonl.gz"), path) for path in folder.glob("*.jsonl.gz")))


def said(manifests: dict[str, Path], as_json: bool) -> None:
    """Print a summary of the prepared manifests."""
    from priormatch.data.corpus import read_cuts
    from priormatch.data.manifest import summary

    found = {name: summary(read_cuts(path)) for name, path in manifests.items()}
    if as_json:
        entries = [{"name": name, "path": manifests[name], **asdict(each)} for name, each in found.items()]
        print(to_json(entries))
        return
    for name, each in found.items():
        print(f"{name}: {each}: {manifests[name]}")
