"""What watching a program costs, beside the bare program and beside torch's anomaly mode.

Times are CPU times of single-threaded programs, which other load on the machine disturbs least.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

LOOPS = Path(__file__).with_name("loops.py")
RUNS: dict[str, tuple[list[str], list[str]]] = {  # what comes before and after the program and its arguments
    "bare": ([], []),
    "watched": (["-m", "graphscope", "inspect"], []),
    "anomaly": ([], ["--anomaly"]),
}


class Run(NamedTuple):
    """One run: seconds of CPU time in all, those of each step, and the peak of the resident memory in bytes."""

    seconds: float
    steps: list[float]
    peak: int


def run(way: str, loop: str, steps: int) -> Run:
    """Run one of the loops in one of the ways, in a process of its own."""
    before, after = RUNS[way]
    with tempfile.TemporaryDirectory() as folder:
        times = os.path.join(folder, "times.json")
        command = [sys.executable, *before, str(LOOPS), loop, str(steps), times, *after]
        quiet = os.open(os.devnull, os.O_WRONLY)
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        child = os.posix_spawn(
            sys.executable, command, environment, file_actions=[(os.POSIX_SPAWN_DUP2, quiet, each) for each in (1, 2)]
        )
        os.close(quiet)
        _, status, usage = os.wait4(child, 0)
        if status:
            raise SystemExit(f"{' '.join(command)} failed")
        taken = json.loads(Path(times).read_text())
    return Run(usage.ru_utime + usage.ru_stime, taken, usage.ru_maxrss * 1024)


def overhead(rounds: int = 5, steps: int = 300) -> None:
    """Print what each loop costs in each way."""
    print(f"\n{steps} steps, beside the bare program; all steps once it is known, the first 10 recorded in full\n")
    print("| loop | a step | whole run | its steps | first 10 | anomaly mode: whole run | its steps | peak memory |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for loop in ("tiny-mlp", "gan", "small-resnet", "small-gpt"):
        runs = [{way: run(way, loop, steps) for way in RUNS} for _ in range(rounds)]

        def ratio(way: str, measure, runs=runs) -> str:
            return f"{median(measure(each[way]) / measure(each['bare']) for each in runs):.2f}x"

        def whole(one: Run) -> float:
            return one.seconds

        def looped(one: Run) -> float:
            return sum(one.steps)

        def first(one: Run) -> float:
            return sum(one.steps[1:11])

        more = median(each["watched"].peak - each["bare"].peak for each in runs) / 2**20
        cells = [
            f"{1e3 * median(median(each['bare'].steps) for each in runs):.2f} ms",
            ratio("watched", whole),
            ratio("watched", looped),
            ratio("watched", first),
            ratio("anomaly", whole),
            ratio("anomaly", looped),
            f"{ratio('watched', lambda one: one.peak)} ({more:+.0f} MB)",
        ]
        print(f"| {loop} | {' | '.join(cells)} |", flush=True)


def endurance(steps: int = 100_000, slow: int = 1_000, rounds: int = 5) -> None:
    """Print what is left of the cost once a program is known, and whether memory grows in a long run."""
    print("\n| long run | bare step | watched | anomaly mode | steps | memory after 1,000 steps and at the end |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for loop, count in (("tiny-mlp", steps), ("busy", slow)):
        runs = [{way: late(way, loop, min(count, 5_000)) for way in RUNS} for _ in range(rounds)]
        cells = [
            f"{1e3 * median(each['bare'] for each in runs):.2f} ms",
            f"{median(each['watched'] / each['bare'] for each in runs):.2f}x",
            f"{median(each['anomaly'] / each['bare'] for each in runs):.2f}x",
            f"{count:,}",
            f"{run('watched', loop, 1_000).peak / 2**20:.0f} MB, {run('watched', loop, count).peak / 2**20:.0f} MB",
        ]
        print(f"| {loop} | {' | '.join(cells)} |", flush=True)


def late(way: str, loop: str, steps: int) -> float:
    """What a step takes once the program is known, in seconds."""
    return median(run(way, loop, steps).steps[200:])


if __name__ == "__main__":
    overhead()
    endurance()
