#!/bin/bash
#SBATCH --job-name=nests
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=04:00:00
# A program with DistributedDataParallel on four nodes: Slurm starts one torchrun a node, and each starts
# eight ranks. They meet at the first node.
set -euo pipefail
source venv/bin/activate # pip install -e '.[torch]'
ranks=8
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
export OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK / ranks))
srun torchrun --nnodes="$SLURM_JOB_NUM_NODES" --nproc-per-node="$ranks" --rdzv-id="$SLURM_JOB_ID" \
    --rdzv-backend=c10d --rdzv-endpoint="$first:29500" examples/clusters/torchrun_ddp.py
