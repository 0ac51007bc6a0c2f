#!/usr/bin/env bash
# What a GPU is asked for, in ten minutes: the numbers of the CPU, speed, and a policy that learns.
#   bash scripts/gpu.sh          writes runs/gpu/
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v nvidia-smi > /dev/null || { echo "No NVIDIA GPU was found here (nvidia-smi)." >&2; exit 1; }
source scripts/venv.sh
ensure_venv test
python=.venv/bin/python
if ! $python -c 'import sys, jax; sys.exit(jax.default_backend() != "gpu")' 2> /dev/null; then
    $python -m pip install --quiet --no-compile "jax[cuda13]" || exit
fi
$python -c 'import sys, jax; sys.exit(jax.default_backend() != "gpu")' || { echo "JAX sees no GPU here." >&2; exit 1; }
mkdir -p runs/gpu
export XLA_PYTHON_CLIENT_PREALLOCATE=false
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | tee runs/gpu/card.txt
status=0
# Alone, so that nothing else is timed.
timeout 280 $python scripts/measure/gpu_speed.py --batches 65536 1048576 --out runs/gpu/speed.jsonl || status=1
# Of each robot and each kind of task one; all take longer than there is.
$python scripts/measure/gpu_agreement.py --out runs/gpu/agreement --within 200 --ids PandaReach-v0 \
    PandaPush-v0 PandaPick-v0 UR10ReachPose-v0 Iiwa14Wipe-v0 MobileTrack-v0 G1Reach-v0 || status=1
timeout 100 $python -m fraxenv train --env PandaReach-v0 --runs runs/gpu --name reach || status=1
exit $status
