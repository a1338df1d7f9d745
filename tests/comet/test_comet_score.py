"""COMET scores: those of its own package, from a folder, without a network and without unpickling."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tandem.comet.comet_folder import CometFolder
from tandem.comet.comet_score import CometScorer
from tandem.comet.estimator import sparsemax
from tandem.comet.xlm_roberta import PAD, XlmrEncoder, encoder_weights, padded
from tandem.errors import TandemError
from tests.comet.tiny_comet import encoder_config, weights, write_tiny_comet

# A double space, a sentence longer than the encoder's positions, and characters that no piece has.
SOURCES = [
    "A young man saw my dog.",
    "The old  woman reads.",
    "No small child has my books " + "and my dog " * 30 + ".",
    "Xyz § quux",
]
TRANSLATIONS = ["Ein junger Mann sah meinen Hund.", "Die alte Frau liest ein Buch.", "Kein Kind.", "Ein"]
REFERENCES = [
    "Ein junger Mann hat meinen Hund gesehen.",
    "Die alte Frau liest.",
    "Kein kleines Kind hat meine Bücher.",
    "Xyz Qüux",
]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_tiny_comet(tmp_path / "tiny")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [-0.75906, -0.5797, -1.1163, -0.93244]),
        ({"layer_transformation": "softmax", "layer_norm": True}, [-0.88372, -0.84117, -1.06702, -0.98201]),
        ({"layer": 2, "pool": "max"}, [-1.05944, -0.63303, -1.13641, -1.01648]),
        ({"pool": "cls", "activations": "Sigmoid", "final_activation": "Sigmoid"}, [0.28506] * 4),
        ({"layer_transformation": "sparsemax_patch"}, [-0.70652, -0.65308, -0.98742, -0.83908]),
    ],
)
def test_scores_are_those_of_unbabel_comet(settings: dict[str, Any], expected: list[float], tmp_path: Path) -> None:
    """Golden values: what unbabel-comet 2.2.7 with transformers 4.57.6 gives for the same folder."""
    scorer = CometScorer(write_tiny_comet(tmp_path / "tiny", **settings))
    scores = scorer.sentence_scores(SOURCES, TRANSLATIONS, REFERENCES)
    assert scores.tolist() == pytest.approx(expected, abs=2e-5)


def test_the_encoder_is_huggingfaces(tiny: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.XLMRobertaConfig(**encoder_config(), hidden_dropout_prob=0.0)
    theirs = transformers.XLMRobertaModel(config, add_pooling_layer=False).eval()
    named = {name.removeprefix("encoder.model."): weight for name, weight in weights() if "encoder.model." in name}
    assert not theirs.load_state_dict(named, strict=False).missing_keys
    folder = CometFolder.open(tiny)
    ours = XlmrEncoder(folder.encoder).eval()
    ours.load_state_dict(encoder_weights(named, folder.encoder))
    ids = padded([[0, 7, 8, 9, 2], [0, 11, 2]])
    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=(ids != PAD).long(), output_hidden_states=True).hidden_states
        found = ours(ids)
    there = ids != PAD
    for layer, other in zip(found, expected, strict=True):
        torch.testing.assert_close(layer[there], other[there], atol=1e-5, rtol=1e-5)


def test_the_order_of_sentences_and_the_form_of_the_weights_change_nothing(tiny: Path, tmp_path: Path) -> None:
    score = CometScorer(tiny).score(SOURCES * 5, TRANSLATIONS * 5, REFERENCES * 5)
    (tiny / "checkpoints/model.ckpt").unlink()
    save_file(dict(weights()), tiny / "checkpoints/model.safetensors")
    again = CometScorer(tiny).score(SOURCES[::-1] * 5, TRANSLATIONS[::-1] * 5, REFERENCES[::-1] * 5)
    assert again.value == pytest.approx(score.value, abs=1e-6)
    assert score.value == pytest.approx(sum([-0.75906, -0.5797, -1.1163, -0.93244]) / 4, abs=2e-5)
    assert abs(score.mean - score.value) < 0.02
    assert 0.05 < score.interval < 0.15
    assert str(score).startswith("COMET -0.8469, 95 % within -0.8")
    assert "|model:tiny|sha256:" in score.signature
    assert again.signature != score.signature, "the digest tells which file was read"


def test_sparsemax_is_the_nearest_point_of_the_simplex() -> None:
    torch.testing.assert_close(sparsemax(torch.tensor([2.0, 0.0, -1.0])), torch.tensor([1.0, 0.0, 0.0]))
    torch.testing.assert_close(sparsemax(torch.tensor([0.5, 0.3, -2.0])), torch.tensor([0.6, 0.4, 0.0]))
    torch.testing.assert_close(sparsemax(torch.zeros(4)), torch.full((4,), 0.25))


class _Harmful:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return print, ("run from a file",)


def _without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _bytes(name: str, content: bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return write


def _hparams(text: str) -> Callable[[Path], None]:
    return _bytes("hparams.yaml", text.encode())


def _checkpoint(content: Any) -> Callable[[Path], None]:
    return lambda folder: torch.save(content, folder / "checkpoints/model.ckpt")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_without("hparams.yaml"), "hparams.yaml: is missing; give the folder of a COMET model"),
        (_without("checkpoints/model.ckpt"), "model.ckpt: is missing; give the folder of a COMET model"),
        (_without("encoder/config.json"), "config.json: is missing; copy config.json and sentencepiece.bpe.model"),
        (_without("encoder/sentencepiece.bpe.model"), "bpe.model: is missing; copy config.json"),
        (
            _hparams("class_identifier: unified_metric"),
            "class_identifier is unified_metric, and Tandem reads",
        ),
        (_hparams("{class_identifier: regression_metric, encoder_model: BERT}"), "encoder_model is BERT"),
        (_hparams("{class_identifier: regression_metric, activations: Foo}"), "Foo is not an activation"),
        (_hparams("{class_identifier: regression_metric, activations: Linear}"), "Linear is not an activation"),
        (_hparams("{class_identifier: regression_metric, final_activation: Module}"), "Module is not an activation"),
        (_hparams("{class_identifier: regression_metric, final_activation: ''}"), "is not an activation"),
        (
            _bytes("encoder/config.json", json.dumps(encoder_config() | {"num_hidden_layers": 10**9}).encode()),
            "the checkpoint has no weights 'encoder.layer.3",
        ),
        (_hparams("{class_identifier: regression_metric, layer: top}"), "layer is top, neither mix nor a number"),
        (_hparams("{class_identifier: regression_metric, layer: 9, hidden_sizes: [12, 8]}"), "there is no layer 9"),
        (_hparams("{class_identifier: regression_metric, hidden_sizes: [5]}"), "the weights do not fit the settings"),
        (_hparams("layer: mix"), "class_identifier: Field required"),
        (_hparams("!!python/object:os.system {}"), "not YAML"),
        (_bytes("encoder/config.json", b"{"), "config.json: cannot be read"),
        (_bytes("encoder/config.json", json.dumps(encoder_config() | {"model_type": "bert"}).encode()), "not of XLM-R"),
        (_bytes("encoder/sentencepiece.bpe.model", b"no"), "not a SentencePiece model"),
        (_bytes("checkpoints/model.ckpt", b"no"), "model.ckpt: "),
        (_checkpoint({"weights": 1}), "it has no state_dict"),
        (_checkpoint({"state_dict": {}}), "the checkpoint has no weights 'embeddings.word_embeddings.weight'"),
        (_checkpoint({"state_dict": {}, "more": _Harmful()}), "which could be code; where you trust it, save"),
    ],
)
def test_a_folder_that_cannot_be_read_is_one_sentence(
    damage: Callable[[Path], None], said: str, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(tiny)
    with pytest.raises(TandemError) as caught:
        CometScorer(tiny)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "run from a file" not in capsys.readouterr().out


def test_a_link_out_of_the_folder_is_not_followed(tiny: Path, tmp_path: Path) -> None:
    (tiny / "encoder/config.json").rename(tmp_path / "elsewhere.json")
    (tiny / "encoder/config.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(TandemError, match="is a link that leads out of it"):
        CometScorer(tiny)


def test_lines_must_match(tiny: Path) -> None:
    scorer = CometScorer(tiny)
    with pytest.raises(TandemError, match="4 sources, 3 translations and 4 references"):
        scorer.score(SOURCES, TRANSLATIONS[:3], REFERENCES)
    with pytest.raises(TandemError, match="no lines to score"):
        scorer.score([], [], [])


def test_the_command_scores_files_and_names_what_it_lacks(tiny: Path, tmp_path: Path) -> None:
    for name, lines in (("src", SOURCES), ("mt", TRANSLATIONS), ("ref", REFERENCES)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def score(*more: str) -> subprocess.CompletedProcess[str]:
        files = ["--hypotheses", str(tmp_path / "mt"), "--references", str(tmp_path / "ref")]
        command = [sys.executable, "-m", "tandem", "score", *files, *more]
        return subprocess.run(command, capture_output=True, text=True)

    done = score("--comet", str(tiny), "--sources", str(tmp_path / "src"), "--metric", "bleu", "--json")
    bleu, comet = json.loads(done.stdout)["scores"]
    assert (bleu["metric"], comet["metric"]) == ("BLEU", "COMET")
    assert comet["value"] == pytest.approx(-0.8469, abs=1e-4)
    refused = score("--comet", str(tiny))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "give it with --sources" in refused.stderr
