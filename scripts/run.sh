#!/usr/bin/env bash
# The main job, from nothing: train a policy, evaluate it, and write runs/NAME/.
#   bash scripts/run.sh                      PandaReach-v0
#   bash scripts/run.sh --env PandaReachPose-v0 --algorithm sac
#   bash scripts/run.sh --resume             continue the latest run
#   bash scripts/run.sh --help
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/venv.sh
ensure_venv train
exec .venv/bin/python -m fraxenv train "$@"
