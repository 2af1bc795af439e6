#!/usr/bin/env bash
# One run, or a bench, on the GPUs of several nodes: sbatch slurm.sh optimize problem.py --model … --parallel 16
#SBATCH --job-name=stark
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --time=08:00:00
set -euo pipefail

# stark and Ray must be installed alike on all nodes, for instance in a venv in a shared home.
PORT=6379
HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
RAY_AUTH_TOKEN=$(python3 -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN RAY_worker_niceness=0 RAY_USAGE_STATS_ENABLED=0
ulimit -n "$(ulimit -Hn)"

srun --cpu-bind=none --nodes=1 --ntasks=1 --nodelist="$HEAD" \
  ray start --head --port=$PORT --include-dashboard=false --block &
sleep 15
if [ "$SLURM_NNODES" -gt 1 ]; then
  srun --cpu-bind=none --nodes=$((SLURM_NNODES - 1)) --ntasks=$((SLURM_NNODES - 1)) --exclude="$HEAD" \
    ray start --address="$HEAD:$PORT" --block &
  sleep 15
fi

# This script runs on the head's node. Killed by the time limit, the run is continued by `sbatch slurm.sh resume last`.
stark "$@" --executor "ray:$HEAD:$PORT"
