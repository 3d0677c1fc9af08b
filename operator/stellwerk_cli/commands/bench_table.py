"""The table of `stellwerk bench`: a row for each workload and scheduler, also for its HTML page.

`bench` prints it. Invariant: the table on the terminal and the one on the page have the same rows.
"""

from typing import Final

from stellwerk_cli.commands.printer import Column, Printer
from stellwerk_simulation.answers import BenchAnswer, BenchRun

_NAME_COLUMNS: Final = 2
"""The first columns, which hold names. The others hold numbers."""
_WRITES: Final = ("POST ", "PUT ", "PATCH ", "APPLY ", "DELETE ")


def print_bench(answer: BenchAnswer, to: Printer) -> None:
    """A row for each workload and scheduler, under what was measured."""
    head, *rows = bench_lines(answer)
    to.say(bench_headline(answer))
    columns = [
        Column(title, is_number=number >= _NAME_COLUMNS, folds=True)
        for number, title in enumerate(head)
    ]
    to.table(columns, rows)


def bench_headline(answer: BenchAnswer) -> str:
    """Scope of the measurement, in a line."""
    where = "the embedded cluster" if answer.embedded else f"Kubernetes {answer.server_version}"
    how = "at once" if answer.rate is None else f"{answer.rate} a second"
    return f"{answer.nodes} nodes of {where}; the pods of a workload are created {how}"


def bench_lines(answer: BenchAnswer) -> list[list[str]]:
    """Titles, and a row for each run; a second scheduler is compared with the first."""
    costs = any(each.cpu_milliseconds_per_pod is not None for each in answer.runs)
    of_server = any(each.api_server_cpu_milliseconds_per_pod is not None for each in answer.runs)
    of_etcd = any(each.etcd_cpu_milliseconds_per_pod is not None for each in answer.runs)
    several = len({each.scheduler for each in answer.runs}) > 1
    head = ["WORKLOAD", "SCHEDULER", "BOUND", "PODS/S", "P50 ms", "P99 ms"]
    head += ["CPU ms/POD", "MiB"] if costs else []
    head += ["API CPU ms/POD", "WRITES/POD"] if of_server else []
    head += ["ETCD CPU ms/POD"] if of_etcd else []
    lines = [[*head, "OF THE FIRST"] if several else head]
    first: dict[str, float] = {}
    for each in answer.runs:
        bound = f"{each.bound}" if each.bound == each.pods else f"{each.bound} of {each.pods}"
        row = [each.workload, each.scheduler, bound]
        row += map(_amount, (each.pods_per_second, each.p50_milliseconds, each.p99_milliseconds))
        row += map(_amount, (each.cpu_milliseconds_per_pod, each.peak_mib)) if costs else []
        if of_server:
            cpu = each.api_server_cpu_milliseconds_per_pod
            row += map(_amount, (cpu, None if cpu is None else _writes_per_pod(each)))
        row += [_amount(each.etcd_cpu_milliseconds_per_pod)] if of_etcd else []
        if several:
            speed = each.pods_per_second
            of = first.setdefault(each.workload, speed) if speed else None
            row.append(f"{speed / of:.2f}" if speed and of else "")
        lines.append(row)
    return lines


def _writes_per_pod(run: BenchRun) -> float:
    """Requests that change something, without those by which the benchmark creates the pods."""
    requests = run.requests_per_pod or {}
    return sum(
        count
        for kind, count in requests.items()
        if kind.startswith(_WRITES) and not kind.startswith("POST pods ")
    )


def _amount(number: float | None) -> str:
    return "" if number is None else f"{number:,.1f}" if number < 10 else f"{number:,.0f}"  # noqa: PLR2004 one digit
