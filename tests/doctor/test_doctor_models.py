from priormatch.doctor.model_checks import findings
from priormatch.recognizers.prior import ConvPrior


def run_folder(folder, recognizer, prior, tokenizer):
    tokenizer.save(folder / "tokenizer")
    recognizer.save(folder / "supervised" / "model")
    prior.save(folder / "prior" / "model")
    return folder


def test_models_that_agree(tmp_path, tiny_recognizer, tiny_prior, tiny_tokenizer):
    (finding,) = findings(run_folder(tmp_path, tiny_recognizer, tiny_prior, tiny_tokenizer))
    assert finding.status == "ok"
    assert "tokenizer, prior/model, supervised/model" in finding.what


def test_a_prior_of_other_pieces(
    tmp_path, tiny_recognizer, tiny_prior_settings, other_tokenizer, tiny_tokenizer
):
    other = ConvPrior(tiny_prior_settings, other_tokenizer)
    (finding,) = findings(run_folder(tmp_path, tiny_recognizer, other, tiny_tokenizer))
    assert finding.status == "problem"
    assert f"{tmp_path / 'prior' / 'model'} has other pieces" in finding.what
    assert f"remove {tmp_path / 'prior'};" in finding.advice


def test_damaged_models(tmp_path, tiny_recognizer, tiny_prior, tiny_tokenizer):
    folder = run_folder(tmp_path, tiny_recognizer, tiny_prior, tiny_tokenizer)
    weights = folder / "supervised" / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    (folder / "prior" / "model" / "model.yaml").unlink()
    *damaged, rest = findings(folder)
    assert [each.status for each in damaged] == ["problem", "problem"]
    assert rest.status == "ok"


def test_no_run_yet(tmp_path):
    assert list(findings(tmp_path / "nowhere")) == []
