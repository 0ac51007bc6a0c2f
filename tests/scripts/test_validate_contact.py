"""`scripts/measure/validate_contact.py`: its numbers, and that it notices."""

from __future__ import annotations

import pytest
from support import load_script, with_slow

pytest.importorskip("mujoco")

SLOW = ("slope", "stack", "grip", "fall")


@pytest.mark.parametrize("check", with_slow(["rest", *SLOW], *SLOW))
def test_contacts_behave_as_bodies_do(check: str) -> None:
    script = load_script("measure/validate_contact")
    rows = script.CHECKS[check](script.Options(quick=True))
    assert rows
    for row in rows:
        assert row.limit is None or row.worst <= row.limit, row


@pytest.mark.slow
def test_it_notices_a_soft_floor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = load_script("measure/validate_contact")
    load = script.load

    def softer(name: str) -> object:
        return script.with_geoms(load(name), solref=(0.2, 1.0))

    monkeypatch.setattr(script, "load", softer)
    monkeypatch.setattr(script, "CHECKS", {"rest": script.rest})
    assert script.main(script.Options(quick=True, backend="xla")) == 1
    assert "penetration" in capsys.readouterr().out
