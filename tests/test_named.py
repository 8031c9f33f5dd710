"""What users named is there, one line of code each: no change drops one of these things unseen.

Each line is true only where the thing itself works, or is found under its name. Rows are added, never taken
away; other tests say whether the things do what they should.
"""

import importlib
import inspect
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.cli import COMMANDS
from foldbatch.engines.engine import ENGINES
from foldbatch.planning.policies import POLICIES
from foldbatch.trees.formats import FORMATS

ROOT = Path(__file__).parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
TREE = fb.trees.parse_brackets("(1 (0 not) (1 good))", labels=int)
BLOCKS = (
    "Tensor Scalar Vector OneHot OneHotFromList InputTransform Optional Nth FromTensor Zeros Function Concat"
)
BLOCKS += (
    " Map Fold RNN Reduce Sum Min Max Mean Broadcast Zip ZipWith NGrams GetItem Slice Length Record AllOf"
)
BLOCKS += " Pipe Composition Identity Void OneOf Metric Loss"
LAYERS = "Linear Embedding LSTMCell GRUCell TreeLSTM ChildSumTreeLSTM TreeRNN RNTN LayerNorm Dropout"
OPTIMIZERS = "SGD Adam AdamW AdaGrad RMSprop Eve"


def total(numbers: Any) -> Any:
    result = fb.tensor(0.0)
    for x in numbers:
        result = result + fb.tensor(x)
    return result


def with_a_block(numbers: Any) -> Any:
    return (fb.Map(fb.Scalar()) >> fb.Sum())(numbers) + total(numbers)


def compiled(backend: Any = "numpy", **options: Any) -> fb.Program:
    model = (
        fb.Map(fb.Scalar() >> fb.Function(lambda x: x[None]) >> fb.Linear(1))
        >> fb.Sum()
        >> fb.Function(ops.sum)
        >> fb.Loss("loss")
    )
    return fb.compile(model, backend, **options)


def metric() -> fb.Program:
    return fb.compile(fb.Scalar() >> fb.Metric("x"), "numpy")


def trained() -> Any:
    trainer = fb.train.Trainer(compiled(), fb.Adam(0.01), batch_size=2)
    return trainer.fit([[1.0], [2.0, 3.0]], epochs=1)


def has(room: str, *names: str) -> bool:
    """Return whether a module has names."""
    module = importlib.import_module(f"foldbatch.{room}")
    return all(hasattr(module, name) for name in names)


def says(path: str, *texts: str) -> bool:
    """Return whether a file of the checkout has texts: options of a command, or what needs an extra library."""
    contents = (ROOT / path).read_text(encoding="utf-8")
    return all(text in contents for text in texts)


NAMED: dict[str, Callable[[], Any]] = {
    # TensorFlow Fold
    "blocks": lambda: all(issubclass(getattr(fb.blocks, name), fb.Block) for name in BLOCKS.split()),
    "layers": lambda: all(issubclass(getattr(fb.blocks, name), fb.Block) for name in LAYERS.split()),
    "eval of one example": lambda: (fb.Map(fb.Scalar()) >> fb.Sum()).eval([1, 2]) == 3,
    "max_depth": lambda: (
        (fb.Map(fb.Scalar()) >> fb.Reduce(fb.Function(ops.add))).max_depth([1, 2, 3, 4]) == 2
    ),
    "losses by name": lambda: [*compiled().run([[1.0]], losses=True).losses] == ["loss"],
    "metrics by example": lambda: metric().run([2.0], metrics=True).metrics["x"].examples.tolist() == [0],
    "DAGs": lambda: (
        fb.Composition().input is not None and "memo" in inspect.signature(fb.ForwardDeclaration).parameters
    ),
    "examples prepared ahead": lambda: (
        callable(fb.train.prefetched) and len(compiled().prepare([[1.0]])) == 1
    ),
    "workers": lambda: (
        "workers" in inspect.signature(fb.train.Trainer).parameters
        and says("foldbatch/torch/module.py", "def collate")
    ),
    # micro static, macro dynamic
    "describe": lambda: compiled().describe([[1.0], [2.0, 3.0]]).steps,
    "draw_schedule": lambda: "<svg" in fb.views.draw_schedule(compiled(), [[1.0]]),
    "draw_model": lambda: "<svg" in fb.views.draw_model(compiled()),
    "scheduling policies": lambda: {"by_component", "by_level"} & {*POLICIES},
    "backends": lambda: {"reference", "numpy", "llvm", "cuda"} <= {*ENGINES},
    # a symbolic graph, compiled
    "explain": lambda: str(fb.explain(compiled())),
    "kernels": lambda: compiled().kernels(whole=True),
    "memory of dead values used again": lambda: has("static.memory", "plan"),
    "folding of operations": lambda: has("static.fusion", "groups"),
    "recomputation under a budget": lambda: (
        compiled(options={"memory": "2 GiB"}).value_and_grad([[1.0]])[0] is not None
    ),
    "work before and after a recursion": lambda: has("static.cellgraph", "BEFORE", "STEP", "AFTER"),
    "rewriting of graphs": lambda: has("static.passes", "PIPELINE", "STAGED"),
    # derivatives
    "gradients": lambda: [*compiled().value_and_grad([[1.0]])[1]] == [*compiled().params],
    "gradients of inputs": lambda: [*compiled().vjp([[1.0]], inputs=True).inputs],
    "forward mode": lambda: compiled().jvp([[1.0]], {}) == (compiled().jvp([[1.0]], {})[0], 0.0),
    "Hessian products": lambda: [*compiled().hvp([[1.0]], {})] == [*compiled().params],
    # imperative programs
    "functions": lambda: fb.compile(total, "numpy").run([[1.0, 2.0]])[0] == 3,
    "values that decide": lambda: has("functions.deciding", "decide") and callable(fb.together),
    "debug": lambda: fb.compile(total, "numpy").debug([1.0, 2.0]).result == 3,
    "cells, losses, metrics, modules of functions": lambda: fb.cell and fb.loss and fb.metric and fb.Module,
    "both doors in one program": lambda: fb.compile(with_a_block, "numpy").run([[1.0, 2.0]])[0] == 6,
    "find_nan": lambda: compiled().find_nan([[1.0]]) is None,
    # explaining
    "attribute": lambda: fb.compile(total, "numpy").attribute([1.0, 2.0]).number == 3,
    "draw_attribution": lambda: (
        "<svg" in fb.views.draw_attribution(fb.compile(total, "numpy").attribute([1.0]))
    ),
    "predict --explain": lambda: says("foldbatch/commands/saved.py", "--explain", "--pictures"),
    # Keras and scikit-learn
    "Trainer.fit": lambda: "loss" in trained()[0],
    "estimators": lambda: says(
        "foldbatch/estimators.py", "class StructureClassifier", "class StructureRegressor"
    ),
    # optimizers
    "optimizers": lambda: all(
        issubclass(getattr(fb.train, name), fb.train.Optimizer) for name in OPTIMIZERS.split()
    ),
    "Eve": lambda: fb.train.Eve(lr=0.01),
    # Caffe
    "commands": lambda: (
        {"train", "eval", "predict", "serve", "export", "inspect", "data", "bench"} <= {*COMMANDS}
    ),
    "configurations": lambda: says("examples/configs/sst.toml", "[model]", "[data]"),
    # TensorBoard, VisualDL, Visdom
    "trackers": lambda: fb.train.TensorBoard and fb.train.WandB and fb.train.MLflow,
    "log_to": lambda: "log_to" in inspect.signature(fb.train.Trainer.fit).parameters,
    "logs": lambda: fb.train.CSVLog and fb.train.JSONLinesLog and fb.train.Progress,
    "callbacks": lambda: fb.train.Callback and fb.train.EarlyStopping and fb.train.Checkpoints,
    "plots": lambda: fb.train.History.plot and fb.train.Confusion.plot and fb.train.CalibrationError.plot,
    "errors on trees": lambda: "bad" in fb.views.draw_errors([TREE], [[0, 0, 0]], ["bad", "good"]),
    "eval --plots": lambda: says("foldbatch/commands/saved.py", "--plots"),
    "timelines": lambda: compiled().profile([[1.0]], steps=1).spans,
    # TensorFlow Serving
    "OpenAPI": lambda: says("foldbatch/serve/openapi.py", "def document"),
    "Open Inference Protocol": lambda: says("foldbatch/serve/inference.py", "class Inference"),
    "health and readiness": lambda: says(
        "foldbatch/serve/running.py", "/healthz", "/readyz", "/openapi.json", "/docs"
    ),
    "serve --watch, --workers": lambda: says("foldbatch/commands/serve.py", "--watch", "--workers"),
    "Dockerfile": lambda: says("Dockerfile", "foldbatch"),
    # PyTorch, ONNX
    "fb.torch.Module": lambda: says("foldbatch/torch/module.py", "class Module"),
    "ONNX": lambda: says("foldbatch/exporting/exporter.py", "class Exporter"),
    # recurrent layers and models of the literature
    "both directions": lambda: fb.zoo.bilstm,
    "models by name": lambda: {"tree_lstm", "child_sum", "rntn", "bilstm", "json"} <= {*fb.zoo.MODELS},
    # several processes
    "torch.distributed": lambda: says("foldbatch/communicators/distributed.py", "class TorchCommunicator"),
    "torchrun": lambda: fb.communicators.finding.launched_by_torchrun,
    "a GPU a process": lambda: says("foldbatch/communicators/local.py", "LOCAL_RANK", "SLURM_LOCALID"),
    "MPI": lambda: says("foldbatch/communicators/mpi.py", "mpi4py") and fb.train.DataParallel,
    "DistributedDataParallel": lambda: (
        says("foldbatch/torch/ranks.py", "DistributedDataParallel")
        and says("examples/clusters/torchrun_ddp.py", "DistributedDataParallel(model)")
    ),
    "Accelerate": lambda: says("examples/clusters/accelerate_launch.py", "accelerator.prepare("),
    "Lightning": lambda: says(
        "examples/clusters/lightning_trainer.py", "lightning.LightningModule", "ckpt_path"
    ),
    "Ray": lambda: says("examples/clusters/ray_train.py", "TorchTrainer("),
    "Spark": lambda: says("examples/clusters/spark_torch.py", "TorchDistributor("),
    "Slurm": lambda: (
        says("examples/clusters/slurm_mpi.sh", "srun --mpi=pmi2", "foldbatch train")
        and says("examples/clusters/slurm_torchrun.sh", "srun torchrun")
    ),
    "Kubernetes": lambda: says("examples/clusters/pytorchjob.yaml", "kind: PyTorchJob", "torchrun"),
    # objects of other libraries
    "trees of other libraries": lambda: callable(fb.trees.from_) and callable(fb.trees.register),
    "formats": lambda: all(map(FORMATS.knows, ("penn", "conllu", "html", "tree-sitter:rust"))),
    "recipes": lambda: says(
        "docs/guests.md", "nltk", "spaCy", "tree-sitter", "RDKit", "DuckDB", "transformers"
    ),
    # Darknet
    "few dependencies": lambda: (
        len(tomllib.loads(PROJECT)["project"]["dependencies"]) <= 8
    ),  # two are of plain Python
    # examples, benchmarks
    "examples of trees": lambda: (
        says("examples/trees/sentiment.py", "TreeLSTM") or says("examples/trees/sentiment.py", "zoo")
    ),
    "compare": lambda: callable(fb.compare) and "compare" in COMMANDS,
    "bench": lambda: callable(fb.bench) and "bench" in COMMANDS,
    "SST": lambda: says("benchmarks/sst.py", "SST"),
}


@pytest.mark.parametrize("is_there", NAMED.values(), ids=NAMED)
def test_what_users_named_is_there(is_there: Callable[[], Any]) -> None:
    assert is_there()
