"""Torture: kills, damaged files, nonsense, disagreeing processes, forks, long runs and bombs, with fixed seeds.

    python -m experiments.torture --quick          # three minutes, in CI
    python -m experiments.torture --out=torture.json

Each room of this package attacks one promise of docs/reliability.md. A room tries its cases in child processes, and
every case ends in one outcome of `tally.OUTCOMES`. The run fails if any outcome of `tally.FORBIDDEN` was seen.
"""
