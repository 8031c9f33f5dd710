"""Trackers write what happened, by the real libraries, offline; what they wrote is read back from its files."""

import json
import struct
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import BackendError, TrainingError, UnknownNameError
from foldbatch.train import DataParallel, LambdaCallback, MLflow, TensorBoard, Trainer, WandB, trackers
from tests.communicators.threads import in_threads
from tests.train.small import DEV, EXAMPLES, model, trainer

LIBRARIES = {"tensorboard": ("tensorboardX", "tensorboard"), "wandb": ("wandb",), "mlflow": ("mlflow",)}


class Written(NamedTuple):
    """What a run has, whichever library wrote it."""

    numbers: dict[str, dict[int, float]]  # by name and step
    histograms: dict[str, list[int]]  # the steps of each
    pictures: list[str]
    settings: dict[str, Any]
    status: str


def read_tensorboard(folder: Path) -> Written:
    processing = import_module("tensorboard.backend.event_processing.event_accumulator")
    parse = import_module("tensorboard.plugins.hparams.plugin_data_pb2").HParamsPluginData.FromString
    events = processing.EventAccumulator(str(folder), {"scalars": 0, "histograms": 0, "images": 0}).Reload()
    tags = events.Tags()
    plugins = {
        tag: parse(events.SummaryMetadata(tag).plugin_data.content)
        for tag in events._plugin_to_tag_to_content.get("hparams", {})
    }
    for tag in tags["scalars"]:
        steps = [event.step for event in events.Scalars(tag)]
        assert len(steps) == len(set(steps)), f"{tag} has a step twice"
    numbers = {tag: {e.step: e.value for e in events.Scalars(tag)} for tag in tags["scalars"]}
    histograms = {tag: [e.step for e in events.Histograms(tag)] for tag in tags["histograms"]}
    settings: dict[str, Any] = {}
    for part in plugins.values():
        for name, value in part.session_start_info.hparams.items():
            settings[name] = getattr(value, value.WhichOneof("kind"))
    for tag in tags["images"]:
        assert all(image.encoded_image_string.startswith(b"\x89PNG") for image in events.Images(tag))
    status = "finished" if plugins else "failed"
    return Written(numbers, histograms, sorted(tags["images"]), settings, status)


def wandb_records(path: Path) -> Iterator[Any]:
    """Yield the records of a file: blocks of 32 KiB with parts, as those of LevelDB's log."""
    parse = import_module("wandb.proto.wandb_internal_pb2").Record.FromString
    data, place, parts = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        remaining = 32768 - place % 32768
        if remaining < 7:
            place += remaining
            continue
        _, size, kind = struct.unpack("<IHB", data[place : place + 7])
        parts += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield parse(parts)
            parts = b""


def read_wandb(folder: Path) -> Written:
    import_module("wandb").teardown()  # the process that writes the file has it whole when it ends
    written = Written(defaultdict(dict), defaultdict(list), [], {}, "failed")
    code = None
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime_ns):
        for record in wandb_records(path):
            for item in record.config.update:
                written.settings[item.key] = json.loads(item.value_json)
            code = record.exit.exit_code if record.WhichOneof("record_type") == "exit" else code
            row = {"/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            for name, value in row.items():
                if name.endswith("/_type"):
                    thing = name.removesuffix("/_type")
                    if value == "histogram":
                        written.histograms[thing].append(row["steps"])
                    else:
                        written.pictures.append(thing)
                elif not name.startswith("_"):
                    written.numbers[name][row["steps"]] = value
    status = "finished" if code == 0 else "failed"
    return written._replace(pictures=sorted(written.pictures), status=status)


def read_mlflow(folder: Path) -> Written:
    client = import_module("mlflow").MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("foldbatch").experiment_id])
    history = {
        name: {m.step: m.value for m in client.get_metric_history(run.info.run_id, name)}
        for name in run.data.metrics
    }
    histograms = {
        name.removesuffix("/median"): sorted(steps) for name, steps in history.items() if "/median" in name
    }
    pictures = sorted(
        artifact.path.removesuffix(".png") for artifact in client.list_artifacts(run.info.run_id)
    )
    status = {"FINISHED": "finished", "FAILED": "failed"}[run.info.status]
    return Written(history, histograms, pictures, {**run.data.params, **run.data.tags}, status)


READ = {"tensorboard": read_tensorboard, "wandb": read_wandb, "mlflow": read_mlflow}


@pytest.fixture(params=sorted(LIBRARIES))
def name(request, tmp_path, monkeypatch):
    for library in LIBRARIES[request.param]:
        if not find_spec(library):
            pytest.skip(f"{library} is not installed")
    return request.param


@pytest.fixture(autouse=True)
def offline(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for variable, value in {
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
        "WANDB_CONSOLE": "off",
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_TRACKING_URI": f"file:{tmp_path}/mlruns",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }.items():
        monkeypatch.setenv(variable, value)
    yield
    if wandb := sys.modules.get("wandb"):
        wandb.teardown()  # else the next test's files were in the folder of this one


def tracker(name: str, **options: Any) -> Any:
    options = {"every": 2, "histograms": 4, **options}
    makers = {"tensorboard": lambda **o: TensorBoard("events", **o), "wandb": WandB, "mlflow": MLflow}
    return makers[name](**options)


def read(name: str) -> Written:
    return READ[name](Path("events" if name == "tensorboard" else "."))


needs_plots = pytest.mark.skipif(not find_spec("matplotlib"), reason="matplotlib is not installed")


@needs_plots
def test_a_run_has_figures_histograms_pictures_and_settings(name):
    losses: dict[int, float] = {}
    note = LambdaCallback(on_step_end=lambda t: losses.update({t.steps: t.batch.loss / 4}))
    made = trainer(callbacks=[note])
    history = made.fit(EXAMPLES, DEV, epochs=2, log_to=tracker(name, configuration={"words": {"size": 7}}))
    run = read(name)
    for figures, step in zip(history, (5, 10), strict=True):
        for figure in ("loss", "lr", "validation_loss", "validation_accuracy"):
            assert run.numbers[figure][step] == pytest.approx(figures[figure], rel=1e-6)
    expected = {2: (1, 2), 4: (3, 4), 5: (5,), 6: (6,), 8: (7, 8), 10: (9, 10)}
    means = {step: np.mean([losses[k] for k in steps]) for step, steps in expected.items()}
    assert run.numbers["step/loss"] == pytest.approx(means)
    assert sorted(run.numbers["step/lr"]) == sorted(run.numbers["step/examples_a_second"]) == sorted(means)
    for piece in ("gradients", "update"):
        assert all(seconds > 0 for seconds in run.numbers[f"time/{piece}"].values())
    parts = {f"{kind}/{of}": [1, 4, 8] for kind in ("parameters", "gradients") for of in made.program.params}
    assert run.histograms == parts
    assert run.pictures == ["model", "schedule"]
    settings = {
        "optimizer": "Adam",
        "optimizer.lr": 0.1,
        "batch_size": 4,
        "seed": 3,
        "weights": 8,
        "words.size": 7,
    }
    assert {key: str(value) for key, value in run.settings.items() if key in settings} == {
        key: str(float(value)) if name == "tensorboard" and not isinstance(value, str) else str(value)
        for key, value in settings.items()
    }
    assert run.status == "finished"


def test_a_resumed_training_goes_on_in_its_run(name, tmp_path):
    """Killed within the second epoch, after a checkpoint at step 7 and steps that it has lost."""

    def stop(made: Trainer) -> None:
        if made.steps == 9:
            raise RuntimeError("killed")

    options = {"pictures": False}
    killed = trainer(tmp_path / "kept", every=7, callbacks=[LambdaCallback(on_step_end=stop)])
    with pytest.raises(RuntimeError, match="killed"):
        killed.fit(EXAMPLES, DEV, epochs=3, log_to=tracker(name, **options))
    assert read(name).status == "failed"
    made = trainer(tmp_path / "kept", every=7)
    made.fit(EXAMPLES, DEV, epochs=3, resume=True, log_to=tracker(name, **options))
    run = read(name)
    assert sorted(run.numbers["validation_loss"]) == [5, 10, 15]
    assert [run.numbers["loss"][step] for step in (5, 10, 15)] == pytest.approx(
        [figures["loss"] for figures in made.history]
    )
    assert run.status == "finished"


def test_a_second_fit_goes_on_and_another_training_has_a_run_of_its_own():
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    made = trainer()
    made.fit(EXAMPLES, DEV, epochs=1, log_to="tensorboard")
    made.fit(EXAMPLES, DEV, epochs=2, log_to=["tensorboard"])
    trainer().fit(EXAMPLES, DEV, epochs=1, log_to="tensorboard")
    folders = sorted(Path("runs", "tensorboard").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    assert [sorted(read_tensorboard(folder).numbers["loss"]) for folder in folders] == [[5, 10], [5]]
    assert [type(callback).__name__ for callback in made.callbacks] == ["Schedule", "EarlyStopping"]


def test_a_new_training_in_a_folder_of_events_takes_their_place():
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    for epochs in (2, 1):
        trainer().fit(EXAMPLES, DEV, epochs=epochs, log_to=tracker("tensorboard", pictures=False))
    run = read("tensorboard")
    assert sorted(run.numbers["loss"]) == [5]
    assert run.histograms["gradients/out.bias"] == [1, 4]


def test_the_first_rank_alone_writes(name):
    def train(communicator: Any) -> Any:
        program = DataParallel(fb.compile(model(), "numpy", threads=1), communicator)
        made = trainer(program=program)
        made.fit(EXAMPLES, DEV, epochs=1, log_to=tracker(name, pictures=False))
        return made

    hook = sys.excepthook
    (first, _) = in_threads(train, 2)
    assert sys.excepthook is hook
    assert read(name).numbers["loss"][5] == pytest.approx(first.history[0]["loss"])
    if name == "tensorboard":
        assert len(list(Path("events").iterdir())) == 1


def test_training_is_the_same_to_the_bit(name, tmp_path):
    plain, tracked = trainer(), trainer()
    plain.fit(EXAMPLES, DEV, epochs=2)
    tracked.fit(EXAMPLES, DEV, epochs=2, log_to=tracker(name, pictures=bool(find_spec("matplotlib"))))
    for parameter, array in plain.program.params.items():
        np.testing.assert_array_equal(tracked.program.params[parameter], array)


def test_histograms_of_gradients_are_those_of_the_mean_loss():
    """As the optimizer gets them: the largest of a bias with no more than a loss an example to give is below 1."""
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    tracker_, largest = tracker("tensorboard", pictures=False), list[float]()
    tracker_.write_histograms = lambda arrays, step: largest.extend(
        [float(np.abs(values).max()) for name, values in arrays.items() if name == "gradients/out.bias"]
    )
    gradients: list[float] = []
    note = LambdaCallback(
        on_gradients=lambda t: gradients.append(float(np.abs(t.batch.gradients["out.bias"]).max() / 4))
    )
    trainer(callbacks=[note]).fit(EXAMPLES, DEV, epochs=1, log_to=tracker_)
    assert largest == pytest.approx([gradients[0], gradients[3]])


def test_what_is_not_finite_is_counted(name):
    made = tracker(name, pictures=False)
    made.open({}, 0)
    made._write_arrays("parameters", {"w": np.array([1.0, np.inf, np.nan]), "v": np.array([np.inf])}, 3)
    made.close({}, {"loss": 1.0}, "finished")
    run = read(name)
    assert run.numbers["not_finite/parameters/w"] == {3: 2.0}
    assert run.numbers["not_finite/parameters/v"] == {3: 1.0}
    assert list(run.histograms) == ["parameters/w"]


@pytest.mark.parametrize(
    ("library", "kind"), [("tensorboardX", TensorBoard), ("wandb", WandB), ("mlflow", MLflow)]
)
def test_without_its_library_a_tracker_is_refused_before_training(library, kind, monkeypatch):
    monkeypatch.setattr(trackers, "find_spec", lambda name: None if name == library else find_spec(name))
    made = trainer()
    before = dict(made.program.params)
    name = kind.__name__.lower()
    expected = rf"{kind.__name__}: expected the library {library}, found none; pip install .*\[{name}\]"
    with pytest.raises(BackendError, match=expected):
        made.fit(EXAMPLES, DEV, epochs=2, log_to=name)
    assert made.steps == made.epochs == 0
    for parameter, array in before.items():
        np.testing.assert_array_equal(made.program.params[parameter], array)


def test_what_is_no_tracker_is_refused():
    made = trainer()
    with pytest.raises(
        UnknownNameError, match=r"log_to: expected one of tensorboard.*'tensorbord' \(did you"
    ):
        made.fit(EXAMPLES, DEV, epochs=1, log_to="tensorbord")
    with pytest.raises(TrainingError, match="log_to: expected a name or a callback, found int 3"):
        made.fit(EXAMPLES, DEV, epochs=1, log_to=3)


def test_a_client_that_begins_no_run_is_told_in_a_sentence(monkeypatch):
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:/dev/null/mlruns")
    made = trainer()
    with pytest.raises(TrainingError, match="MLflow: expected a run that mlflow begins, found .*; see what"):
        made.fit(EXAMPLES, DEV, epochs=1, log_to=MLflow(pictures=False))
    assert made.steps == 0


@pytest.mark.parametrize("library", ["wandb", "mlflow"])
def test_a_run_of_the_user_is_used_and_stays_open(library, monkeypatch):
    module = pytest.importorskip(library, reason=f"{library} is not installed")
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # which wandb replaces
    run = module.init(project="mine") if library == "wandb" else module.start_run()
    try:
        trainer().fit(EXAMPLES, DEV, epochs=1, log_to=tracker(library, pictures=False))
        active = module.run if library == "wandb" else module.active_run()
        assert active is not None
        if library == "wandb":
            assert run.summary["loss"] > 0
        else:
            assert "loss" in module.MlflowClient().get_run(run.info.run_id).data.metrics
    finally:
        module.finish() if library == "wandb" else module.end_run()
