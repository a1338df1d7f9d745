"""What a library's error may tell everybody."""

from __future__ import annotations

import pytest

from tandem.errors import TandemError
from tandem.monitor.secrets import error_without_secrets, without_secrets


def test_accounts_in_addresses_are_left_out() -> None:
    text = "GET https://mila:s3cr3t@tracking.example:5000/api and http://plain.example/@name"
    assert without_secrets(text) == "GET https://***@tracking.example:5000/api and http://plain.example/@name"


def test_a_password_may_have_the_sign_that_ends_it() -> None:
    text = "two: postgresql://mila:s3cr@3t@one.example/runs, https://mila:@@two.example"
    assert without_secrets(text) == "two: postgresql://***@one.example/runs, https://***@two.example"


def test_values_of_secret_variables_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "abcdef123456")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "abcdef")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "no")
    monkeypatch.setenv("KEYBOARD", "keyboard")
    assert without_secrets("abcdef123456, abcdef and no keyboard") == "***, *** and no keyboard"


def test_errors_are_one_line_of_bounded_length() -> None:
    assert error_without_secrets(TandemError("set it")) == "set it"
    assert error_without_secrets(ValueError("two\n  lines")) == "ValueError: two lines"
    assert len(error_without_secrets(ValueError("x" * 5000))) < 500
