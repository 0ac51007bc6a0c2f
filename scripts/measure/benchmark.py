"""Measure fraxenv and its peers side by side: dynamics, environments, compile time, memory.

    python scripts/measure/benchmark.py                       everything that is installed
    python scripts/measure/benchmark.py --quick               some minutes, small batches
    python scripts/measure/benchmark.py --workloads ids       every registered environment
    python scripts/measure/benchmark.py --peers native frax --workloads panda-forward-dynamics
    python scripts/measure/benchmark.py --help

Prints tables, and leaves `results.jsonl` and `throughput.png` in the folder `--out`. The peers come
with `pip install -e ".[bench]"`; what is not installed, or fails, is listed with the reason.
"""

import sys

from benchmark.command import main

if __name__ == "__main__":
    sys.exit(main())
