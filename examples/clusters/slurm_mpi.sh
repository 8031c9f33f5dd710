#!/bin/bash
#SBATCH --job-name=sst
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=2
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
# `foldbatch train` on four nodes over MPI: a rank a task. Two minutes before its time is over, Slurm sends
# SIGTERM, and rank 0 writes a checkpoint; a job that is queued again goes on from it.
set -euo pipefail
source venv/bin/activate # pip install -e '.[mpi]'
resume=
compgen -G "runs/sst/checkpoints/*" >/dev/null && resume=--resume
srun --mpi=pmi2 --cpu-bind=cores foldbatch train sst.toml --folder runs/sst $resume
