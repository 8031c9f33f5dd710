"""The command that evaluates: figures of the test part, or of another file."""

import json

import pytest

from foldbatch.cli import main


def test_figures_of_the_test_part_and_of_a_file(run, treebank, capsys):
    assert main(["eval", str(run), str(run / "configuration.toml")]) == 0
    first, second, *classes = capsys.readouterr().out.splitlines()
    assert first.startswith("examples 6, loss ") and "precision" in second and len(classes) == 5
    assert main(["eval", str(run / "model.safetensors"), str(treebank / "dev.txt"), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    written = json.loads((run / "figures.json").read_text())
    saved, shares = written["dev"], written["baselines"]["dev"]
    assert figures["baselines"] == shares
    assert main(["eval", str(run / "model.safetensors"), str(treebank / "dev.txt")]) == 0
    beside = f"(always the most frequent class: {shares['accuracy']:.6g})"
    assert f"accuracy {saved['accuracy']:.6g} {beside}, " in capsys.readouterr().out
    assert {name: figures[name] for name in saved} == saved and figures["examples"] == 6
    assert figures["classes"]["neutral"]["examples"] == sum(figures["confusion"][2]) == 2


def test_a_figure_that_is_too_low_is_a_failed_check(run, capsys):
    data = str(run / "configuration.toml")
    assert main(["eval", str(run), data, "--least", "0"]) == 0
    assert main(["eval", str(run), data, "--least", "1.1"]) == 1


def test_plots_of_a_run(run, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    folder = tmp_path / "plots"
    assert main(["eval", str(run), str(run / "configuration.toml"), "--plots", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "calibration_error " in out
    names = ["confusion.png", "reliability.png", "errors.svg", "training.png"]
    assert [line for line in out.splitlines() if line.startswith("plot: ")] == [
        f"plot: {folder / name}" for name in names
    ]
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    accuracy = float(out.split("accuracy ")[1].split()[0])
    wrong = round(6 * (1 - accuracy))
    assert " of 6 trees with an error" in (folder / "errors.svg").read_text()
    assert int((folder / "errors.svg").read_text().split(" of 6 trees")[0].rpartition(">")[2]) >= wrong


def test_plots_of_records_and_of_numbers(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    for kind, labels in {"class": ("true", "false"), "number": ("1.5", "2")}.items():
        data, folder = tmp_path / f"{kind}.jsonl", tmp_path / kind
        data.write_text("".join(f'{{"x": {k}, "label": {labels[k % 2]}}}\n' for k in range(6)))
        options = ["--data.format", "jsonlines", "--data.train", str(data), "--task.kind", kind]
        options += ["--train.epochs", "1", "--model.hidden", "2", "--no-gain"]
        assert main(["train", *options, "--folder", str(folder)]) == 0
        assert main(["eval", str(folder), str(data), "--plots", str(folder / "plots"), "--json"]) == 0
        written = sorted(path.name for path in (folder / "plots").iterdir())
        of_classes = ["confusion.png", "reliability.png", "training.png"]
        assert written == (of_classes if kind == "class" else ["numbers.png", "training.png"])


def test_a_folder_of_plots_that_is_a_file_is_refused_first(run, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    (tmp_path / "taken").write_text("")
    assert main(["eval", str(run), "no-such-file", "--plots", str(tmp_path / "taken")]) == 2
    assert "--plots: expected a folder, found the file" in capsys.readouterr().err


def test_what_a_models_file_names_is_not_opened(run, capsys):
    assert main(["eval", str(run)]) == 2
    assert capsys.readouterr().err == (
        "error: DATA: expected a file of examples, or the CONFIG.toml of the run, found none; "
        "a model's own file opens no other\n"
    )


def test_data_without_examples_are_refused(run, tmp_path, capsys):
    (tmp_path / "none.txt").write_text("")
    assert main(["eval", str(run), str(tmp_path / "none.txt")]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_the_least_accuracy_is_a_number_of_a_model_of_classes(run, tmp_path, capsys):
    for wrong in ("nan", "-1", "high"):
        with pytest.raises(SystemExit):
            main(["eval", str(run), "--least", wrong])
    (tmp_path / "t.jsonl").write_text('{"x": 1, "label": 1}\n')
    given = ["--data.format", "jsonlines", "--data.train", str(tmp_path / "t.jsonl"), "--task.kind", "number"]
    folder = str(tmp_path / "run")
    assert main(["train", *given, "--train.epochs", "1", "--model.hidden", "2", "--folder", folder]) == 0
    assert main(["eval", folder, str(tmp_path / "t.jsonl")]) == 0
    assert "(always the mean: 0)" in capsys.readouterr().out
    assert main(["eval", folder, "--least", "0.5", str(tmp_path / "t.jsonl")]) == 2
    assert "--least: expected a model of classes" in capsys.readouterr().err


def test_a_model_is_shown_with_its_options_parameters_and_schedule(run, capsys):
    assert main(["inspect", str(run), str(run / "configuration.toml"), "--batch-size", "2"]) == 0
    out = capsys.readouterr().out
    for part in ('name = "tree_lstm"', "words.weight: float32[6,2]", "2 examples: ", "memory: "):
        assert part in out


def test_a_configuration_is_shown_as_what_it_would_train(run, capsys):
    assert main(["inspect", str(run / "configuration.toml")]) == 0
    assert "1 example: " in capsys.readouterr().out


def test_a_model_is_shown_without_what_its_file_names(run, capsys, tmp_path):
    assert main(["inspect", str(run)]) == 0
    assert "no examples to run: DATA: expected a file of examples" in capsys.readouterr().out
    for wrong in (["--timeline", str(tmp_path / "none.svg")], [str(tmp_path / "none.txt")]):
        assert main(["inspect", str(run), *wrong]) == 2
        assert capsys.readouterr().err.startswith("error: ")
    assert not (tmp_path / "none.svg").exists()
