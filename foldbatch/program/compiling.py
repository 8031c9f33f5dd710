"""Compiling and loading: from a block, or from a file that `Program.save` wrote, to a `Program`."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack
from warnings import warn

import msgspec

from foldbatch.blocks.block import as_block
from foldbatch.blocks.drafts import refuse_no_count
from foldbatch.blocks.lower import built, linked
from foldbatch.blocks.plain import from_plain, to_plain
from foldbatch.engines.budget import bytes_of
from foldbatch.engines.engine import (
    Launch,
    Precision,
    check_precision,
    choose_engine,
    choose_launch,
    choose_straight,
)
from foldbatch.engines.runner import Options
from foldbatch.errors import (
    BackendError,
    BlockTypeError,
    ChangedModelWarning,
    FoldbatchError,
    ReadError,
    UnknownNameError,
    frames_inside,
    shortened,
)
from foldbatch.functions.learnt import Learnt
from foldbatch.functions.modules import is_walk, refuse_no_walk
from foldbatch.functions.saving import WrittenWalk, from_written
from foldbatch.functions.tracer import FunctionTracer
from foldbatch.model.drafts import ASIDES
from foldbatch.model.paths import Trusted, trust_in
from foldbatch.model.replacing import Replacements
from foldbatch.model.tracer import MAX_CALLS, Tracer
from foldbatch.params.parameters import name_parameters
from foldbatch.params.saved import ANEW, MODEL_FILE
from foldbatch.planning.layout import find_layout
from foldbatch.planning.policies import find_policy
from foldbatch.planning.sharing import find_share
from foldbatch.program.program import Program
from foldbatch.program.saving import IN_A_SCRIPT, read_header, with_paths
from foldbatch.system.cores import available_cores
from foldbatch.types import BackendName, describe_value, truth

# Options of `compile` that few programs set, with their defaults.
OPTIONS: Mapping[str, Any] = {
    "policy": "auto",
    "layout": "consumer",
    "batched": True,
    "share": "leaves",
    "max_calls": MAX_CALLS,
    "precision": "fp32",
    "memory": None,
}
LOADED = (*OPTIONS, "seed", "threads", "launch", "debug")  # options of `load`


class CompileOptions(TypedDict, total=False):
    """Options of `compile` that few programs set; their meanings stand there."""

    policy: Literal["auto", "by_component", "by_agenda", "by_depth"]
    layout: Literal["consumer", "producer"]
    batched: bool
    share: Literal["leaves", "subtrees"] | None
    max_calls: int
    precision: Precision
    memory: str | int | None


class LoadOptions(CompileOptions, total=False):
    """Options of `load` besides the backend: all others of `compile`."""

    seed: int
    threads: int | None
    launch: Launch
    debug: bool


def compile(
    block: Any,
    backend: BackendName = "auto",
    *,
    seed: int | None = None,
    fresh: bool = False,
    threads: int | None = None,
    launch: Launch = "auto",
    debug: bool = False,
    options: CompileOptions | None = None,
) -> Program:
    """Compile a block into a program.

    Args:
        block: a block (or what stands for one) whose input is one example.
        backend: ``numpy``; ``llvm``, which compiles elementwise ops, products, whole recursions and
            schedules (in ten seconds or so the first time, half a second once they are on disk; see
            `foldbatch.loops.compiling`); ``cuda``, on a GPU of NVIDIA (see ``docs/gpu.md``);
            ``auto``, the first of ``llvm`` and ``numpy`` that works here, or what the variable
            ``FOLDBATCH_BACKEND`` names; or, for tests, ``reference`` (one call at a time in float64: slow,
            right).
        seed: from which parameters draw their first values, and dropout and sampling their numbers; 0 where
            none is given. Layers keep the values that they have: a seed that they ignore is warned of.
        fresh: whether the program has parameters of its own, which begin anew from the seed. Those of the
            layers stay as they are, for other programs: each of an ensemble, and of a cross-validation, is
            one ``fb.compile(model, seed=k, fresh=True)``. Parameters that are frozen now are frozen there.
        threads: into how many parts a large batch is cut, to run side by side; by default the
            cores at hand. A GPU takes a batch whole. Results differ with it by rounding only. With the
            backend ``llvm`` and two or more, a second core helps with batches too small to be cut, too.
        launch: how the backend ``cuda`` launches a batch: ``straight``, kernel by kernel; ``captured``, one
            CUDA graph for all batches of a capacity class; ``auto``, a graph where a batch fits into a class
            and else kernel by kernel, or what the variable ``FOLDBATCH_LAUNCH`` names. Other backends have
            ``auto`` only.
        debug: check every schedule, and fill unused buffers with NaN.
        options: others by name, for example ``{"share": "subtrees"}``:

            - ``policy``: how calls are grouped: ``by_component``, ``by_agenda``, ``by_depth``; or ``auto``,
              ``by_component`` that plans no longer than that saves (`Program.describe` says what it chose).
            - ``layout``: how values are numbered: ``consumer`` or ``producer``.
            - ``batched``: False runs one example at a time, for comparison.
            - ``share``: which identical calls of a batch run once: ``leaves``, those that read only a few
              integers; ``subtrees``, also those that read identical results (never calls with a loss, a
              metric, floats of the example, or random numbers); or None. Gradients are exact.
              `Program.describe` counts.
            - ``max_calls``: how many calls an example may make; one that makes more is refused before it
              fills the memory. Examples that share their parts do, where the parts are visited at each place
              (`ForwardDeclaration`).
            - ``memory``: how many bytes a batch may need for its values and what its backward pass reads:
              a number, or text such as ``"2 GiB"``. A batch that needs more runs in parts, whose gradients
              are added, and a part of few examples in windows of levels, whose values are computed twice.
              Results, metrics and random numbers are those of the whole batch, gradients differ by
              rounding. Parameters, their gradients and the examples are not counted. `Program.describe`
              says what a batch takes. A GPU runs such batches kernel by kernel.
            - ``precision``: how matrices of float32 are multiplied: ``fp32``, of the factors as they are;
              ``bf16``, of factors rounded to 7 bits behind the point (results differ by about 5e-3 of the
              largest), by ``llvm`` on a processor with AVX-512 BF16, by ``cuda``, and slowly by ``numpy``;
              ``tf32``, to 10 bits, by ``cuda`` alone; ``3xtf32``, on its tensor cores, of factors that are
              sums of two such numbers, with an error as of ``fp32``, where products are large. Sums are of
              float32, and everything else is computed as in ``fp32``, products whose weight an id chooses
              for each row as well. ``mixed``, by ``cuda`` alone, multiplies as ``fp32``, and holds values
              that cells hand to each other as bfloat16: results differ by about 3e-3 of the largest.
              Gradients stay float32.

    Raises:
        BlockTypeError: when the block is ill typed; the message says where.
        BlockValueError: when a number is none, or too small.
        UnknownNameError: when an option, backend, policy, layout, precision, way to launch or to share does
            not exist.
        BackendError: when what the backend needs is not installed or does not work, or when it does not have
            the precision or the way to launch.

    Warns once a program: `UnusedSeedWarning`, when a seed is given and parameters have values already which
    it did not draw, or which have changed since. Of a plain function that is known at the first batch.

    >>> program = fb.compile(fb.Map(fb.Scalar() >> fb.Function(lambda x: x * x)))
    >>> [[float(x) for x in result] for result in program.run([[1, 2], [], [3]])]
    [[1.0, 4.0], [], [9.0]]
    """
    if seed is not None:
        refuse_no_count("seed", seed, 0)
    settings: dict[str, Any] = {"threads": threads, "launch": launch, "debug": debug, "options": options}
    return compiled(block, backend, seed or 0, fresh=fresh, checks_seed=seed is not None, **settings)


def compiled(
    block: Any,
    backend: BackendName,
    seed: int,
    *,
    fresh: bool = False,
    checks_seed: bool = False,
    options: CompileOptions | None = None,
    **settings: Any,
) -> Program:
    """Compile as `compile` does; with `checks_seed`, warn of a seed that parameters ignore."""
    chosen = _options_in(options)
    _refuse_unknown("compile options", chosen, tuple(OPTIONS))
    learnt = Learnt(replacements=Replacements(fresh=truth("fresh", fresh)))
    lowered, prepared = _prepare(block, backend, chosen, **{"threads": None, **settings}, learnt=learnt)
    return Program(lowered, prepared, seed, checks_seed=checks_seed)


def _options_in(options: object) -> Mapping[str, object]:
    """Return the options of `compile` as a mapping, refusing any other object."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        fix = "for example options={'share': 'subtrees'}"
        raise BlockTypeError("compile options", "a mapping from names", describe_value(options), fix)
    return options


def _refuse_unknown(where: str, names: Iterable[str], allowed: Sequence[str]) -> None:
    """Refuse names of options that are not allowed."""
    unknown = sorted({*names} - {*allowed}, key=str)
    if unknown:
        raise UnknownNameError(where, f"options of fb.compile: {', '.join(allowed)}", shortened(unknown))


def _prepare(
    block: Any,
    backend: str,
    settings: Mapping[str, Any],
    *,
    threads: int | None,
    launch: str = "auto",
    debug: bool = False,
    learnt: Learnt | None = None,
) -> tuple[Tracer, Options]:
    """Check options and build the model, as `compile` does first; `settings` are of `OPTIONS`."""
    chosen = {**OPTIONS, **settings}
    policy, layout, share = (chosen[k] for k in ("policy", "layout", "share"))
    if threads is not None:
        refuse_no_count("threads", threads, 1)
    refuse_no_count("max_calls", chosen["max_calls"], 1)
    debug, batched = truth("debug", debug), truth("batched", chosen["batched"])
    engine = choose_engine(backend)
    cores = available_cores() if threads is None else threads
    check_precision(chosen["precision"], engine)
    memory = bytes_of(chosen["memory"])
    launch = choose_launch(launch, engine) if memory is None else choose_straight(launch, engine)
    options = Options(
        engine, policy, layout, batched, cores, debug, share, chosen["precision"], launch, memory
    )
    find_layout(layout)
    find_share(share)
    grouping, max_calls = find_policy(policy), chosen["max_calls"]
    if is_walk(block):
        refuse_no_walk(block)
    else:
        block = as_block(block)
        built_block = built(block)
        if not built_block.walks:
            replacements = None if learnt is None else learnt.replacements
            settled = grouping, max_calls, replacements
            return linked(block, built_block, *settled, to_plain), options
    return FunctionTracer(block, grouping, max_calls, ASIDES, learnt), options


def load(
    path: str | os.PathLike[str],
    backend: BackendName = "auto",
    *,
    trust: Iterable[Trusted] = (),
    accept: Iterable[str] = (),
    **options: Unpack[LoadOptions],
) -> Program:
    """Return the program that `Program.save` wrote to a file.

    It computes what the saved one did, to the last bit on the same backend and machine. It trains on from
    the same step, and frozen parameters stay frozen. A file may name functions of this package, and a few of
    Python and NumPy that only compute. It may call functions of yours only where `trust` has them.

    Args:
        path: of the file.
        backend: as of `foldbatch.compile`.
        trust: modules, functions and classes that the file may name, or their names: ``("mymodels",)`` for a
            module and those below it, ``("mymodels:clean",)`` for a function, ``(__name__,)`` for the script
            that calls. Modules are imported when the file asks for them.
        accept: what functions of a walk may read although it is another than when the file was saved, by the
            names that errors tell: ``("mymodels:VOCABULARY",)``, or ``("mymodels",)`` for all of a module.
        options: other options of `foldbatch.compile`, in place of those that the program was saved with.

    Raises:
        ReadError: when the file is damaged or was changed, holds something else, or was written by a newer
            version; or when functions of the model are not found, or not trusted: the message says how to
            trust them, or that `Block.load_parameters` fills a block that a script makes; or when cells of a
            walk compute something else than when it was saved, or it reads other constants.
        OSError: when there is no such file, or it cannot be read.
        FoldbatchError: when an option is wrong, as of `foldbatch.compile`, or `trust` has something else.

    Warns: `ChangedModelWarning`, when functions of a walk, or lists, dicts and arrays that they read, are
        others than when it was saved.

    >>> import tempfile
    >>> words = fb.trees.Vocabulary(["good", "bad"])
    >>> ids = fb.Map(fb.InputTransform(words) >> fb.Scalar("int32"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = f"{folder}/ids.safetensors"
    ...     fb.compile(ids, "numpy").save(file, {"language": "en"})
    ...     program = fb.load(file)
    >>> [int(x) for x in program.run([["bad", "day"]])[0]], program.notes
    ([2, 0], {'language': 'en'})
    """
    trusted, accepted = trust_in(trust), _names_in(accept)
    arrays, header = read_header(path)
    where = os.fspath(path)
    if header.origin is None:
        lost = header.lost or ["a file without a model"]
        fix = f"{with_paths(lost)}; {IN_A_SCRIPT}"
        raise ReadError(where, "a model that a file can hold whole", shortened(lost), fix)
    block: object
    learnt, changed = None, list[str]()
    try:
        if isinstance(header.origin, WrittenWalk):
            block, learnt, parameters, changed = from_written(header.origin, arrays, trusted, accepted)
        else:
            block, parameters = from_plain(header.origin, arrays, trusted)
    except FoldbatchError as error:
        raise ReadError(f"{where}: {error.where}", error.expected, error.found, error.fix) from None
    _refuse_unknown("load", options, LOADED)
    kept: dict[str, Any] = msgspec.structs.asdict(header.options)
    if "precision" not in options:
        kept["precision"] = _precision(header.options.precision, backend)
    kept |= options
    seed = kept.pop("seed")
    refuse_no_count("seed", seed, 0)
    lowered, ready = _lowered(where, block, backend, kept, learnt)
    if learnt is None and name_parameters(lowered.model.parameters) != parameters:
        raise ReadError(where, MODEL_FILE, "a block that has other parameters than the file", ANEW)
    program = Program(lowered, ready, seed, parameters)
    program.steps_drawn, program.notes = header.step, header.notes
    if changed:
        expected, actual = (
            "a walk that reads what it read when it was saved",
            f"changes of {shortened(changed)}",
        )
        fix = "restore them; or see that results are right, and save the program anew"
        warn(ChangedModelWarning(where, expected, actual, fix), stacklevel=frames_inside())
    return program


def _names_in(accept: object) -> tuple[str, ...]:
    names = () if isinstance(accept, str) or not isinstance(accept, Iterable) else tuple(accept)
    if isinstance(accept, str) or not all(isinstance(name, str) for name in names):
        fix = 'for example accept=("mymodels:VOCABULARY",)'
        raise UnknownNameError("accept", "a tuple of names that errors tell", describe_value(accept), fix)
    return names


def _precision(precision: str, backend: str) -> str:
    """Return the file's precision where a backend has it, else that of all backends."""
    try:
        check_precision(precision, choose_engine(backend))
    except BackendError:
        return "fp32"
    return precision


def _lowered(
    where: str, block: object, backend: str, options: dict[str, Any], learnt: Learnt | None
) -> tuple[Tracer, Options]:
    """Lower a block or a walk of a file; errors become errors of the file."""
    try:
        program_options = {name: options.pop(name) for name in [*options] if name not in OPTIONS}
        return _prepare(block, backend, options, **{"threads": None, **program_options}, learnt=learnt)
    except FoldbatchError:
        raise
    except Exception as error:
        actual = f"a block that raises {type(error).__name__}: {error}"
        raise ReadError(where, MODEL_FILE, actual, ANEW) from error
