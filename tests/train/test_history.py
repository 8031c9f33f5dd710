"""The history of a training is a list that draws itself; metrics draw what they computed last."""

import math
from importlib.util import find_spec

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import BackendError, TrainingError, UnknownNameError
from foldbatch.train import CalibrationError, Confusion, History
from foldbatch.views import plots
from tests.train.small import DEV, EXAMPLES, trainer

needs_plots = pytest.mark.skipif(not find_spec("matplotlib"), reason="matplotlib is not installed")
HISTORY = History(
    [
        {"epoch": 1, "loss": 2.0, "seconds": 0.1, "validation_loss": 3.0, "validation_f1": {"bad": 0.5}},
        {"epoch": 2, "loss": math.nan, "seconds": 0.1, "validation_loss": 1.0, "table": [[1]], "note": "x"},
    ]
)


def test_a_fit_returns_a_history_also_where_it_is_resumed(tmp_path):
    made = trainer(tmp_path)
    assert isinstance(made.history, History)
    first = made.fit(EXAMPLES, DEV, epochs=1)
    again = trainer(tmp_path)
    second = again.fit(EXAMPLES, DEV, epochs=2, resume=True)
    assert isinstance(first, History) and isinstance(second, History) and second[:1] == first


def test_figures_of_the_validation_set_share_axes_with_those_of_training():
    assert HISTORY.groups() == {"loss": ["loss", "validation_loss"], "f1": ["validation_f1/bad"]}


@needs_plots
def test_curves_have_the_figures_as_points():
    axes = HISTORY.plot().figure.axes
    assert [one.get_title() for one in axes if one.get_title()] == ["loss", "f1"]
    lines = {line.get_label(): line.get_xydata().tolist() for one in axes for line in one.lines}
    np.testing.assert_equal(lines["loss"], [[1, 2], [2, math.nan]])
    assert lines["validation_loss"] == [[1, 3], [2, 1]] and lines["validation_f1/bad"] == [[1, 0.5]]
    assert len(HISTORY.plot("loss").figure.axes) == 1


@needs_plots
def test_a_notebook_shows_curves_and_a_table():
    html = HISTORY._repr_html_()
    assert html.startswith('<img src="data:image/png;base64,') and "validation_f1/bad" in html
    assert "no epochs" in History()._repr_html_() and "img" not in History()._repr_html_()


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(
        UnknownNameError, match=r"plot: expected a figure of loss, f1, found 'los' \(did you mean"
    ):
        HISTORY.plot("los")
    with pytest.raises(
        UnknownNameError, match="plot: expected a figure of an epoch, found no epochs; fit first"
    ):
        History().plot()


def test_without_matplotlib_it_is_said_how_to_install_it(monkeypatch):
    monkeypatch.setattr(plots, "is_installed", lambda: False)
    with pytest.raises(BackendError, match=r"plot: expected the library matplotlib, found none; pip install"):
        HISTORY.plot()
    assert "<img" not in HISTORY._repr_html_()
    confusion = Confusion("root")
    confusion.compute(np.eye(2), [0, 1])
    assert confusion._repr_png_() is None


@needs_plots
def test_a_confusion_is_drawn_in_shares_with_its_counts():
    confusion = Confusion("root", classes=["bad", "good"])
    assert confusion._repr_png_() is None
    with pytest.raises(
        TrainingError, match="Confusion plot: expected .* found nothing computed yet; give it to"
    ):
        confusion.plot()
    confusion.compute(np.array([[0.1, 0.9], [0.8, 0.2], [0.7, 0.3], [0.9, 0.1]]), [1, 0, 1, 1])
    axes = confusion.plot().figure.axes[0]
    np.testing.assert_allclose(axes.images[0].get_array(), [[1, 0], [2 / 3, 1 / 3]])
    assert [text.get_text() for text in axes.texts] == ["1", "0", "2", "1"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["bad", "good"]
    assert confusion._repr_png_().startswith(b"\x89PNG")
    named = Confusion("root", classes=["bad"])
    named.compute(np.eye(2), [0, 1])
    with pytest.raises(TrainingError, match="Confusion classes: expected 2 names, found 1"):
        named.plot()


def scores(count: int, classes: int = 3):
    rng = np.random.default_rng(count)
    return 2 * rng.normal(size=(count, classes)), rng.integers(0, classes, size=count).tolist()


def test_calibration_by_hand():
    """Bins of probabilities above 0.7 and up to 0.8, and above 0.9."""
    values = np.log([[0.75, 0.25], [0.2, 0.8], [0.05, 0.95], [0.95, 0.05]])
    error = CalibrationError("root").compute(values, [0, 0, 1, 0])
    assert error == pytest.approx(0.5 * abs(0.775 - 0.5) + 0.5 * abs(0.95 - 1))
    assert math.isnan(CalibrationError("root").compute(np.zeros((0, 2)), []))
    halves = CalibrationError("root", bins=2)  # a probability of 1/2 lies at the end of the first bin
    halves.compute(np.zeros((1, 2)), [0])
    assert halves._sums[0].tolist() == [1, 0]


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_calibration_is_that_of_torchmetrics(bins):
    functional = pytest.importorskip("torchmetrics.functional.classification", reason="needs torchmetrics")
    torch = pytest.importorskip("torch")
    values, labels = scores(200)
    expected = functional.multiclass_calibration_error(
        torch.tensor(values).softmax(1), torch.tensor(labels), 3, n_bins=bins
    )
    assert CalibrationError("root", bins=bins).compute(values, labels) == pytest.approx(
        float(expected), rel=1e-5
    )


@needs_plots
def test_a_reliability_diagram_has_the_bins():
    calibration = CalibrationError("root", bins=4)
    values, labels = scores(100)
    error = calibration.compute(values, labels)
    above, below = calibration.plot().figure.axes
    counts = np.array([bar.get_height() for bar in below.patches])
    assert counts.sum() == 100 and len(counts) == 4
    full = counts > 0
    dots = above.lines[1].get_xydata()
    shares = np.array([bar.get_height() for bar in above.patches])
    np.testing.assert_allclose(dots[:, 1], shares)
    assert np.abs(dots[:, 0] - dots[:, 1]) @ counts[full] / 100 == pytest.approx(error)


def test_a_trainers_metrics_draw_the_last_evaluation():
    confusion = Confusion("out")
    made = fb.train.Trainer(trainer().program, fb.SGD(0.1), metrics=[confusion])
    assert made.evaluate(DEV)["confusion"] == confusion.table
