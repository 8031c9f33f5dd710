"""The command ``foldbatch train``: a configuration in, a folder with a trained model out."""

import warnings
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from foldbatch.commands.options import count, first_speaks
from foldbatch.communicators import Communicator, find, from_first, share, together
from foldbatch.errors import BlockUseError, FoldbatchWarning
from foldbatch.gain import glance
from foldbatch.program.predicting import predictions, spelled
from foldbatch.recipes.building import metrics_of, sized, structure_of
from foldbatch.recipes.configuration import (
    Configuration,
    describe_options,
    read_configuration,
    split_overrides,
    unknown_option,
    with_absolute_paths,
)
from foldbatch.recipes.data import Dataset, read_dataset
from foldbatch.recipes.fitting import (
    CONFIGURATION,
    FIGURES,
    MODEL,
    Fitted,
    as_json,
    baselines,
    beside,
    drawing,
    evaluate,
    fit,
    mean_and_deviation,
)
from foldbatch.system.files import remove_partial, write_whole
from foldbatch.train.metrics import Baseline
from foldbatch.train.weights import label_of
from foldbatch.trees.tree import trusted_tree

RUNS = Path("runs")
WHERE = "--folder"
SHOWN_PREDICTIONS = 3  # predictions at the end
SHOWN_ROWS = 100  # of a stream, among which they are chosen
SEED = "seed-"  # begins the names of the folders of several seeds


def main(arguments: Sequence[str], prog: str) -> int:
    """Train, test and save; return the exit status. Processes that a launcher started do it together."""
    communicator = find()
    with first_speaks(communicator), together(communicator):
        _main(arguments, prog, communicator)
        share(communicator, None)  # none leaves before all are done
    return 0


def _main(arguments: Sequence[str], prog: str, communicator: Communicator) -> None:
    """Train as the arguments say, and print files, figures and some predictions."""
    overrides, remaining = split_overrides(arguments)
    options, unknown = _parser(prog).parse_known_args(remaining)
    if unknown:
        raise unknown_option(unknown[0])
    of_run = options.folder / CONFIGURATION if options.folder and options.resume else None
    if options.config is None and of_run is not None and of_run.exists():
        options.config = of_run  # a run goes on with its own options
    settings = read_configuration(options.config, overrides)
    configuration = with_absolute_paths(settings)
    name = options.config.stem if options.config else configuration.data.format
    first = communicator.rank == 0
    chosen = _folder(options.folder, name, resume=options.resume) if first else None
    folder = from_first(communicator, chosen)
    with warnings.catch_warnings():
        if options.strict:
            warnings.simplefilter("error", FoldbatchWarning)
        dataset = read_dataset(configuration)
    configuration = sized(configuration, dataset)
    counts = f"{dataset.count} examples to train on, {len(dataset.dev)} dev, {len(dataset.test)} test"
    print(f"{counts}; {len(dataset.classes)} classes" if dataset.classes else counts, flush=True)
    metrics = metrics_of(dataset.kind, configuration.train.metrics)
    parts = {"dev": dataset.dev, "test": dataset.test}
    baselines_of = {part: baselines(examples, metrics) for part, examples in parts.items() if examples}
    if baselines_of:
        print(_baseline_line(metrics[0].name, baselines_of), flush=True)
    if options.seeds == 1:
        fitted = [fit(configuration, dataset, folder, resume=options.resume, communicator=communicator)]
        for part in ("dev", "test"):
            if part in fitted[0].figures:
                print(f"{part}: {', '.join(_numbers(fitted[0].figures[part], baselines_of[part]))}")
    else:
        fitted = _train_seeds(configuration, dataset, folder, options, communicator)
    if not first:
        return
    for trained in fitted:
        print(f"model: {trained.path}")
    _show_predictions(fitted[0], dataset)
    if options.gain and (gain := _gain(fitted[0], dataset, configuration)):
        print(gain)


def _gain(fitted: Fitted, dataset: Dataset, configuration: Configuration) -> str:
    """Return the gain of batching, as a line."""
    size = configuration.train.batch_size
    return glance(fitted.program, dataset.members(size), size)


def _train_seeds(
    configuration: Configuration,
    dataset: Dataset,
    folder: Path,
    options: Namespace,
    communicator: Communicator,
) -> list[Fitted]:
    """Train a model for each seed; print and write their figures, and those of the ensemble."""
    fitted = []
    for number in range(options.seeds):
        train = msgspec.structs.replace(configuration.train, seed=configuration.train.seed + number)
        seeded = msgspec.structs.replace(configuration, train=train)
        print(f"seed {train.seed}")
        seed_folder = folder / f"{SEED}{train.seed}"
        fitted.append(fit(seeded, dataset, seed_folder, resume=options.resume, communicator=communicator))
    if communicator.rank:
        return fitted
    report: dict[str, Any] = {}
    metrics = metrics_of(dataset.kind, configuration.train.metrics)
    for part, examples in (("dev", dataset.dev), ("test", dataset.test)):
        if examples:
            report[part] = mean_and_deviation([trained.figures[part] for trained in fitted])
            programs = [trained.program for trained in fitted]
            report[part]["ensemble"] = evaluate(programs, examples, metrics)
            figures = _figures(report[part], baselines(examples, metrics))
            print(f"{part}, {options.seeds} seeds: {figures}")
    remove_partial(folder, [FIGURES])
    write_whole(folder / FIGURES, as_json(report))
    return fitted


def _baseline_line(name: str, baselines_of: Mapping[str, Mapping[str, Baseline]]) -> str:
    """Return the figures of a constant answer on each part, to be read before those of the first epoch."""
    parts = [f"{baseline[name].figure:.4f} on {part}" for part, baseline in baselines_of.items()]
    answer = next(iter(baselines_of.values()))[name].answer
    return f"always answering {answer}: {name} {', '.join(parts)}"


def _figures(figures: Mapping[str, Any], baseline_of: Mapping[str, Baseline]) -> str:
    """Return means and deviations of figures as one line, beside those of a constant answer."""
    parts = []
    for name, value in figures.items():
        if name == "ensemble":
            parts += [f"ensemble {number}" for number in _numbers(value, baseline_of)]
        else:
            shown = f"{name} {value['mean']:.4f} ± {value['deviation']:.4f}"
            parts.append(shown + beside(baseline_of.get(name), ".4f"))
    return ", ".join(parts)


def _numbers(figures: Mapping[str, object], baseline_of: Mapping[str, Baseline]) -> list[str]:
    numbers = {name: value for name, value in figures.items() if isinstance(value, float)}
    return [f"{name} {value:.4f}{beside(baseline_of.get(name), '.4f')}" for name, value in numbers.items()]


def _show_predictions(fitted: Fitted, dataset: Dataset) -> None:
    """Print predictions of examples that were not trained on, and how many of all are right."""
    part = "test" if dataset.test else "dev" if dataset.dev else "train"
    examples = dataset.members(SHOWN_ROWS) if part == "train" else getattr(dataset, part)
    small = [example for example in examples if 6 <= getattr(structure_of(example), "size", 0) <= 16]
    accuracy = fitted.figures.get(part, {}).get("accuracy")
    labelled = sum(label_of(example) is not None for example in examples)
    share = "" if accuracy is None else f"; {accuracy:.1%} of all {labelled} are right"
    if accuracy is not None:
        share += beside(baselines(examples, metrics_of(dataset.kind))["accuracy"], ".1%")
    print(f"predictions of the {part} part{share}:")
    names, nodes = dataset.classes + dataset.aside, dataset.kind == "nodes"
    for shown in (small or examples)[:SHOWN_PREDICTIONS]:
        structure, label = structure_of(shown), label_of(shown)
        (prediction,) = predictions([fitted.program], fitted.notes, [structure], nodes=nodes)
        mark = ""
        if names and label is not None and label >= 0:
            right = prediction["label"] == names[label]
            mark = "✓ " if right else f"✗ it is {spelled(names[label])}, not "
        elif not names and label is not None:
            mark = f"it is {label:g}; predicted: "
        if dataset.kind == "root":  # its labels are drawn: by name
            tree, numbers = structure.tree, range(len(dataset.classes))
            labels = [str(dataset.classes[number]) if number in numbers else "" for number in tree.labels]
            structure = trusted_tree(tree.parents, labels, tree.tokens)
        print(f"{mark}{drawing(structure, prediction)}")


def _folder(chosen: Path | None, name: str, *, resume: bool) -> Path:
    """Return the folder of the run: a new one, or to resume the one that is there."""
    if chosen is not None:
        files = (CONFIGURATION, MODEL, FIGURES, f"{SEED}*")
        if not resume and any(path for file in files for path in chosen.glob(file)):
            fix = "add --resume to go on with it, or name another folder"
            raise BlockUseError(WHERE, "a folder without a run", str(chosen), fix)
        if resume and not chosen.is_dir():
            fix = "leave --resume out"
            raise BlockUseError(WHERE, "a folder with a run to resume", f"no folder {chosen}", fix)
        return chosen
    taken = [RUNS / name] if (RUNS / name).exists() else []
    while taken and (following := RUNS / f"{name}-{len(taken) + 1}").exists():
        taken.append(following)
    if resume and not taken:
        raise BlockUseError("--resume", f"a run in {RUNS / name}", "none", "leave --resume out")
    if resume:
        return taken[-1]
    return RUNS / (f"{name}-{len(taken) + 1}" if taken else name)


def _parser(prog: str) -> ArgumentParser:
    """Return the parser of the arguments of ``foldbatch train``; its help lists all options."""
    rows = [f"  --{name} {default}\n        {help_text}" for name, default, help_text in describe_options()]
    listed = "\n".join(rows)
    parser = ArgumentParser(
        prog=prog,
        description="Train a model as a configuration says, test its best epoch, and save it in a folder.",
        epilog=f"options of the configuration, with their defaults:\n{listed}",
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
        usage=f"{prog} [CONFIG.toml] [--SECTION.KEY VALUE ...] [--folder DIR] [--resume] [--seeds N] "
        "[--strict] [--no-gain]",
    )
    help_text = (
        "options in sections; without a file, a Tree-LSTM learns functions of Python's standard library"
    )
    parser.add_argument("config", nargs="?", type=Path, metavar="CONFIG.toml", help=help_text)
    help_text = "of the run; by default a new one in runs/"
    parser.add_argument("--folder", type=Path, metavar="DIR", help=help_text)
    help_text = "go on where the run in the folder was interrupted"
    parser.add_argument("--resume", action="store_true", help=help_text)
    help_text = "refuse examples without a label, which are passed over"
    parser.add_argument("--strict", action="store_true", help=help_text)
    help_text = "train N models with seeds that follow each other, and test them together"
    parser.add_argument("--seeds", type=count, default=1, metavar="N", help=help_text)
    help_text = "do not measure at the end, for two seconds, what batching gains"
    parser.add_argument("--no-gain", action="store_false", dest="gain", help=help_text)
    return parser
