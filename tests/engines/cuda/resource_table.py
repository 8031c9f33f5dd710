"""What the kernels of well-known models take of a GPU: ``python -m tests.engines.cuda.resource_table --help``.

NVRTC compiles the kernels and says so; no GPU is needed.
"""

import argparse
import re
import time
from collections.abc import Iterator, Sequence
from functools import cache

import foldbatch as fb
from benchmarks.fold_model import fold_model
from benchmarks.workload import tree_lstm
from benchmarks.zoo_models import MODELS
from foldbatch.engines.bindings import bind
from foldbatch.engines.cuda.fixed_kernels import TEXT
from foldbatch.engines.cuda.kernel_text import TARGET
from foldbatch.engines.cuda.kernels import Kernel, kernels_of
from foldbatch.errors import BackendError
from foldbatch.model.model import Model
from foldbatch.trees import Vocabulary
from tests.engines.cuda.nvrtc import compiled, nvrtc
from tests.engines.cuda.resources import Resources, resources

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
SIZE = 32  # of states in the models of the zoo; only numbers in texts depend on it
WORDS = Vocabulary([f"word{i}" for i in range(100)])
OWN = TEXT  # kernels that every program needs


@cache
def main_models() -> dict[str, fb.Block]:
    found = {f"SST Tree-LSTM {size}": tree_lstm(size, WORDS) for size in (150, 300, 1024)}
    found["Fold's model 300"] = fold_model(300, 100)
    return found | {name: model.block(model.size or SIZE, WORDS) for name, model in MODELS.items()}


def model_of(block: fb.Block) -> Model:
    return fb.compile(block, "numpy").model


def kernels(model: Model, *, training: bool) -> list[Kernel]:
    return kernels_of(bind(model, TARGET, training=training))


def text_of(model: Model) -> str:
    """Return the text of all kernels of a model, those that infer under names of their own."""
    texts = ["\n".join(kernel.text for kernel in kernels(model, training=t)) for t in (True, False)]
    return "\n".join([texts[0], re.sub(r"^KERNEL k", "KERNEL infer_k", texts[1], flags=re.MULTILINE)])


def table(model: Model, architecture: str) -> Iterator[str]:
    """Yield lines of a table of the kernels that train a model, in Markdown."""
    bound = bind(model, TARGET, training=True)
    made = kernels_of(bound)
    taken = resources("\n".join(kernel.text for kernel in made), architecture)
    yield "| kernel | threads | registers | spilled bytes | shared bytes |"
    yield "|---|---|---|---|---|"
    for key, kernel in zip(bound.keys, made, strict=True):
        for task in kernel.tasks:
            if task.name:
                of, (x, y) = taken[task.name], task.threads
                name = f"{model.cells[key.cell].name} {key.stage} {task.name}"
                yield f"| {name} | {x} x {y} | {of.registers} | {of.spilled} | {of.shared} |"


def worst(taken: Sequence[Resources]) -> str:
    """Return what the kernels take that take most."""
    return (
        f"{len(taken):4} kernels, at most {max((x.registers for x in taken), default=0):3} registers, "
        f"{max((x.spilled for x in taken), default=0)} spilled, {max((x.shared for x in taken), default=0)} shared, "
        f"{max((x.stack for x in taken), default=0)} stack"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", default="SST Tree-LSTM 300", help="whose kernels are listed one by one")
    parser.add_argument("--architecture", default="sm_90")
    options = parser.parse_args(arguments)
    blocks = main_models()
    if options.model not in blocks:
        parser.error(f"argument --model: expected one of {', '.join(blocks)}, found {options.model!r}")
    try:
        nvrtc()
    except BackendError as error:
        parser.error(str(error))
    models = {name: model_of(block) for name, block in blocks.items()}
    print(*table(models[options.model], options.architecture), sep="\n")
    texts = {name: text_of(model) for name, model in models.items()} | {"every program's own": OWN}
    for architecture in ARCHITECTURES:
        print(f"\n{architecture}")
        for name, text in texts.items():
            start = time.perf_counter()
            warned = compiled(text, architecture).log.count("warning")
            seconds = time.perf_counter() - start
            taken = list(resources(text, architecture).values())
            print(f"{name:24} {worst(taken)}, {warned} warnings, compiled in {seconds:.2f} s")


if __name__ == "__main__":
    main()
