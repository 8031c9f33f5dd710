"""The programs of examples/clusters, each started by its launcher, on this machine.

Those of Ray and Spark take minutes, and run where ``FOLDBATCH_LAUNCHERS="ray spark"`` asks for them, which CI
does not.
"""

import importlib.util
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.torch.launchers.launching import PROGRAMS, TORCHRUN, launched

RIGHT = re.compile(r"right: (\d+)% of unseen nests")


def lacks(package, extra="launchers"):
    """Return a mark that skips a test where a package is not installed."""
    return pytest.mark.skipif(
        find_spec(package) is None, reason=f"needs {package}: pip install -e '.[{extra}]'"
    )


def asked(name):
    """Return a mark that skips a test of a launcher unless it is asked for."""
    reason = f"takes minutes: FOLDBATCH_LAUNCHERS={name} runs it"
    return pytest.mark.skipif(name not in os.environ.get("FOLDBATCH_LAUNCHERS", "").split(), reason=reason)


def said(done, beginning):
    """The percentage in the line that a program prints in one process; the program ended well."""
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if beginning in line]
    return int(RIGHT.search(line)[1])


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@lacks("torch", "torch")
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 4])
def test_torchrun(ranks):
    """Two ranks are in `test_wrapped`."""
    done = launched(*TORCHRUN, ranks, PROGRAMS / "torchrun_ddp.py")
    assert said(done, f"{ranks} ranks, equal to the bit: True;") > 90


@lacks("accelerate")
@pytest.mark.slow
def test_accelerate(tmp_path):
    """On CPUs, Accelerate's launcher starts several processes by mpirun."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if shutil.which("mpirun", path=path) is None:
        pytest.skip("needs mpirun: pip install -e '.[mpi]'")
    (tmp_path / "hosts").write_text("localhost\n", encoding="utf-8")
    options = ["--cpu", "--num_processes", 2, "--mpirun_hostfile", tmp_path / "hosts"]
    options += ["--main_process_port", free_port(), PROGRAMS / "accelerate_launch.py"]
    done = launched("accelerate.commands.accelerate_cli", "launch", *options, PATH=path)
    assert said(done, "2 ranks;") > 90


@lacks("lightning")
@pytest.mark.slow
def test_lightning(tmp_path):
    done = launched(PROGRAMS / "lightning_trainer.py", "--folder", tmp_path, folder=tmp_path)
    if "cannot load MPI library" in done.stderr:
        pytest.skip("mpi4py, which Lightning asks, finds no MPI library")
    assert said(done, "2 ranks, epochs 5;") > 90
    assert (tmp_path / "last.ckpt").exists()


@lacks("lightning")
def test_what_lightning_resumes_ends_as_what_it_never_stopped(tmp_path):
    spec = importlib.util.spec_from_file_location("lightning_trainer", PROGRAMS / "lightning_trainer.py")
    program = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's own
        spec.loader.exec_module(program)
        import torch  # noqa: PLC0415
        from lightning.fabric.plugins.environments import LightningEnvironment  # noqa: PLC0415

        draws = random.Random(1)
        nests = [program.nest(draws) for _ in range(48)]
        options = {"accelerator": "cpu", "devices": 1, "plugins": [LightningEnvironment()]}
        options["enable_model_summary"] = False

        def parameters(trainer):
            return torch.nn.utils.parameters_to_vector(trainer.lightning_module.parameters()).detach()

        straight = parameters(program.fitted(nests, 4, tmp_path / "straight", shuffle=False, **options))
        stopped = parameters(program.fitted(nests, 2, tmp_path / "stopped", shuffle=False, **options))
        resumed = program.fitted(nests, 4, tmp_path / "stopped", resume=True, shuffle=False, **options)
    assert not torch.equal(stopped, straight)
    assert torch.equal(parameters(resumed), straight)


@asked("ray")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ray(tmp_path):
    settings = {"HOME": str(tmp_path), "RAY_USAGE_STATS_ENABLED": "0"}
    settings["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = "400"  # other processes may want the cores
    kept = ("--folder", tmp_path / "kept")
    done = launched(PROGRAMS / "ray_train.py", *kept, folder=tmp_path, limit=550, **settings)
    assert said(done, "2 workers, a checkpoint of the model: True;") > 90


@asked("spark")
@pytest.mark.slow
def test_spark(tmp_path):
    done = launched(PROGRAMS / "spark_torch.py", folder=tmp_path, SPARK_LOCAL_IP="127.0.0.1")
    assert said(done, "2 ranks, equal to the bit: True;") > 90


def test_the_page_shows_every_program_whole():
    page = (PROGRAMS.parents[1] / "docs" / "clusters.md").read_text(encoding="utf-8")
    shown = re.findall(r'^--8<-- "examples/clusters/(\S+)"$', page, re.MULTILINE)
    assert sorted(shown) == sorted(path.name for path in PROGRAMS.iterdir() if path.is_file())


SRUN = """#!/bin/bash
printf '%s\\n' "$@" > srun.txt
"""


def submitted(script, folder, **environment):
    """Return the words after ``srun`` that a batch script ends with, and the names of its options."""
    commands = folder / "commands"
    commands.mkdir()
    (folder / "venv" / "bin").mkdir(parents=True)
    (folder / "venv" / "bin" / "activate").write_text("", encoding="utf-8")
    for name, text in {"srun": SRUN, "scontrol": "#!/bin/bash\necho node1\necho node2\n"}.items():
        (commands / name).write_text(text, encoding="utf-8")
        (commands / name).chmod(0o755)
    path = f"{commands}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", PROGRAMS / script], cwd=folder, env={**os.environ, **environment, "PATH": path}, check=False
    )
    assert done.returncode == 0
    options = re.findall(r"^#SBATCH --([a-z-]+)(?:=\S+)?$", (PROGRAMS / script).read_text(), re.MULTILINE)
    assert len(options) == (PROGRAMS / script).read_text().count("#SBATCH")
    return (folder / "srun.txt").read_text(encoding="utf-8").split("\n")[:-1], options


SBATCH = {
    "cpus-per-task", "job-name", "nodes", "ntasks-per-node", "open-mode", "requeue", "signal", "time",
}  # fmt: skip


@pytest.mark.parametrize("kept", [False, True])
def test_a_batch_script_of_slurm_trains_over_mpi_and_goes_on(kept, tmp_path):
    if kept:
        (tmp_path / "runs" / "sst" / "checkpoints").mkdir(parents=True)
        (tmp_path / "runs" / "sst" / "checkpoints" / "a").touch()
    words, options = submitted("slurm_mpi.sh", tmp_path)
    start = words.index("foldbatch")
    assert words[:start] == ["--mpi=pmi2", "--cpu-bind=cores"]
    assert words[start:] == ["foldbatch", "train", "sst.toml", "--folder", "runs/sst"] + ["--resume"] * kept
    assert {*options} <= SBATCH


@lacks("torch", "torch")
def test_a_batch_script_of_slurm_starts_torchrun_at_each_node(tmp_path):
    from torch.distributed.run import parse_args  # noqa: PLC0415

    environment = {"SLURM_JOB_NODELIST": "node[1-4]", "SLURM_CPUS_PER_TASK": "16"}
    environment |= {"SLURM_JOB_NUM_NODES": "4", "SLURM_JOB_ID": "77"}
    words, options = submitted("slurm_torchrun.sh", tmp_path, **environment)
    assert words[0] == "torchrun"
    found = parse_args(words[1:])  # torchrun's own
    assert (found.nnodes, found.nproc_per_node, found.rdzv_id) == ("4", "8", "77")
    assert (found.rdzv_backend, found.rdzv_endpoint) == ("c10d", "node1:29500")
    assert (PROGRAMS.parents[1] / found.training_script).exists()
    assert {*options} <= SBATCH


def manifest():
    yaml = pytest.importorskip("yaml", reason="needs PyYAML: pip install -e '.[launchers]'")
    return yaml.safe_load((PROGRAMS / "pytorchjob.yaml").read_text(encoding="utf-8"))


@lacks("kubernetes_validate")
@pytest.mark.parametrize("wrong", [None, "spec", "replicas", "container", "resources"])
def test_the_manifest_of_kubernetes_fits_its_schemas(wrong):
    import jsonschema  # noqa: PLC0415
    import kubernetes_validate  # noqa: PLC0415

    job = json.loads(json.dumps(manifest()))  # without aliases
    worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    container = worker["template"]["spec"]["containers"][0]
    if wrong == "spec":
        job["spec"]["nProcPerNode"] = 2
    elif wrong == "replicas":
        worker["replicas"] = "1"
    elif wrong == "container":
        container["name"] = "trainer"
    elif wrong == "resources":
        container["resources"]["limit"] = container["resources"].pop("limits")

    def check():
        schema = json.loads(Path(__file__).with_name("pytorchjob.json").read_text(encoding="utf-8"))
        jsonschema.validate(job, schema)
        for replicas in job["spec"]["pytorchReplicaSpecs"].values():
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, **replicas["template"]}
            kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)

    if wrong is None:
        check()
    else:
        with pytest.raises(jsonschema.ValidationError):
            check()


@lacks("torch", "torch")
def test_the_program_of_the_manifest_is_torchruns(monkeypatch):
    from torch.distributed.run import parse_args  # noqa: PLC0415

    job = manifest()
    for number, replicas in enumerate(job["spec"]["pytorchReplicaSpecs"].values()):
        (container,) = replicas["template"]["spec"]["containers"]
        command = container["command"]
        assert (command[0], Path(command[1]).name) == ("torchrun", "torchrun_ddp.py")
        monkeypatch.setenv("PET_NNODES", "2")  # what the operator sets, and torchrun reads
        monkeypatch.setenv("PET_NPROC_PER_NODE", job["spec"]["nprocPerNode"])
        monkeypatch.setenv("PET_NODE_RANK", str(number))
        found = parse_args(command[1:])
        assert (found.nnodes, found.nproc_per_node, found.node_rank) == ("2", "2", number)
