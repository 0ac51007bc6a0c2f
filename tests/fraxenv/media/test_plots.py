"""Pictures: what is drawn, and that it is drawn whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

import fraxenv
from fraxenv.envs import Measure
from fraxenv.errors import ConfigError
from fraxenv.media import plots
from fraxenv.media.video import save_video

DISTANCE = Measure("position_error", "m", shown="mm", label="distance", below="position_tolerance")


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved."""
    saved: list[Figure] = []
    save = Figure.savefig

    def keep(self: Figure, *args: Any, **kwargs: Any) -> None:
        saved.append(self)
        save(self, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", keep)
    return saved


def metrics(steps: list[int], success: list[float]) -> list[dict[str, float]]:
    return [
        {"step": n, "success": s, "return": 10 * s, "position_error": 1.0 - 0.9 * s}
        for n, s in zip(steps, success, strict=True)
    ]


def test_learning_curves_show_median_and_range(tmp_path: Path, figures: list[Figure]) -> None:
    runs = [metrics([100, 200], [0.0, x]) for x in (0.2, 1.0, 0.4)]
    runs.append(metrics([100, 200, 300], [0.0, 0.6, 1.0]))  # what all have in common is drawn
    groups = {
        "PPO": runs,
        "SAC": runs[:1],
        "another task": [[{"step": 100, "success": 1.0, "return": 0.0}]],
    }
    plots.plot_learning_curves(tmp_path / "c.png", groups, "title", (DISTANCE, Measure("turn")))
    final = figures[0].axes[2]
    assert (final.get_ylabel(), final.get_yscale()) == ("final distance, median, mm", "log")
    np.testing.assert_allclose(final.lines[1].get_ydata(), [1000, 820])
    assert len(final.lines) == 2
    axes = figures[0].axes[1]
    line = axes.lines[0]
    np.testing.assert_allclose(line.get_xdata(), [1e-4, 2e-4])
    np.testing.assert_allclose(line.get_ydata(), [0.0, 50.0])
    band = axes.collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(100)
    assert band[band[:, 0] > 1.5e-4][:, 1].min() == pytest.approx(20)
    labels = [t.get_text() for t in figures[0].legends[0].get_texts()]
    assert labels == ["PPO: median and range of 4 seeds", "SAC", "another task"]
    with Image.open(tmp_path / "c.png") as picture:
        assert picture.size == (1260, 408)


def test_evaluations_are_cumulative(tmp_path: Path, figures: list[Figure]) -> None:
    results = {"a": {"position_error": [0.004, 0.001, 0.002]}, "b": {"speed": [0.4]}}
    reported = (DISTANCE, Measure("speed", "m/s"))
    plots.plot_evaluation(tmp_path / "e.png", results, reported, {"position_error": 0.003})
    left, right = figures[0].axes
    assert (left.get_xlabel(), right.get_xlabel()) == ("final distance, mm", "final speed, m/s")
    assert (left.get_xscale(), right.get_xscale()) == ("log", "linear")
    np.testing.assert_allclose(right.lines[0].get_xdata(), [0.4])
    assert len(right.lines) == 1
    line = left.lines[0]
    np.testing.assert_allclose(line.get_xdata(), [1, 2, 4])
    np.testing.assert_allclose(line.get_ydata(), [100 / 3, 200 / 3, 100])
    assert left.lines[1].get_xdata()[0] == pytest.approx(3)


def test_throughput(tmp_path: Path, figures: list[Figure]) -> None:
    series = {"native": ([1, 64], [1e4, 1e5], [9e3, 9e4], [2e4, 2e5])}
    plots.plot_throughput(tmp_path / "t.png", series, "PandaReach-v0")
    axes = figures[0].axes[0]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["1", "64"]
    assert axes.get_xscale() == axes.get_yscale() == "log"


def test_a_rollout_has_gaps_between_episodes() -> None:
    infos = {"a": np.arange(4.0)[:, None], "b": np.ones((4, 1), bool), "n": np.arange(4)[:, None]}
    told = plots._with_gaps({"in": infos}, np.array([2]))["in"]
    np.testing.assert_array_equal(told["a"], [0, 1, np.nan, 2, 3])
    np.testing.assert_array_equal(told["b"], [True, True, False, True, True])
    np.testing.assert_array_equal(told["n"], [0, 1, np.nan, 2, 3])


def test_errors_are_drawn_with_what_counts_as_reached() -> None:
    env, params = fraxenv.make("PandaReachPose-v0")
    axes = Figure().add_subplot()
    errors = {"position_error": np.array([0.1, 0.01]), "orientation_error": np.array([1.0, 0.01])}
    plots._error_panel(axes, np.arange(2.0), errors, env, params)
    height = {line.get_label(): line.get_ydata()[-1] for line in axes.lines}
    assert height["distance, mm"] == pytest.approx(10)
    assert height["turn, degrees"] == pytest.approx(np.degrees(0.01))
    dashed = [line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == "--"]
    assert dashed == pytest.approx([20, np.degrees(0.1)])


def test_nothing_is_written_where_drawing_fails(tmp_path: Path) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    with pytest.raises(ZeroDivisionError), plots.picture(tmp_path / "f.png", 2, 2):
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_films(tmp_path: Path, suffix: str) -> None:
    frames = [np.full((32, 48, 3), 20 * i, np.uint8) for i in range(5)]
    save_video(tmp_path / f"f{suffix}", frames, 25)
    assert (tmp_path / f"f{suffix}").stat().st_size > 100
    if suffix == ".gif":
        with Image.open(tmp_path / "f.gif") as film:
            assert (film.n_frames, film.info["duration"], film.size) == (5, 40, (48, 32))


def test_films_that_cannot_be(tmp_path: Path) -> None:
    frames = [np.zeros((16, 16, 3), np.uint8)]
    with pytest.raises(ConfigError, match=r"ends in .gif or .mp4"):
        save_video(tmp_path / "f.avi", frames, 25)
    with pytest.raises(ConfigError, match="no frames"):
        save_video(tmp_path / "f.gif", [], 25)
    assert not list(tmp_path.iterdir())
