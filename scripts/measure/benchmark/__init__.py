"""The parts of `scripts/measure/benchmark.py`.

`command` starts one process per contender (`worker`), because flags and precision have to be set
before imports, and asks them in turn, so that a machine that slows down slows all of them down.
"""
