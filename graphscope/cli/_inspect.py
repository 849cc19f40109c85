"""``graphscope inspect``: run a program and report."""

from __future__ import annotations

import atexit
import importlib.util
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path

import click

from .. import discovery
from .._collector import paused_gc, settle_gc
from ..analyzer import analyze
from ..errors import GraphscopeError
from ..findings import Severity
from ..report import Report, save
from ..show import Show
from ..trace import Trace
from ..why import answers
from ._output import (
    apart,
    check_picture,
    flush_stdout,
    format_of,
    is_colored,
    is_terminal,
    patience,
    rendered_as,
    still_open,
    writable,
)
from ._problem import Problem
from ._show import shows


def _codes(_context: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    return tuple(code.strip().upper() for value in values for code in value.split(",") if code.strip())


@click.command(context_settings={"allow_interspersed_args": False}, options_metavar="[OPTIONS]")
@click.option("-m", "module", metavar="MODULE", help="Run a module, as `python -m` does, in place of SCRIPT.")
@click.option(
    "--graph",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw the graph into FILE; its suffix says how: .svg .png .pdf .dot .mmd (Mermaid) .graphml .html .json",
)
@click.option(
    "--format",
    type=click.Choice(discovery.names("renderers")),
    help="What the report looks like.  [default: as FILE's suffix says, else text]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Write the report to FILE, `-` for stdout.  [default: stderr]",
)
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "note", "never"]),
    default="error",
    show_default=True,
    help="The least severity that gives exit status 1.",
)
@click.option("--select", multiple=True, callback=_codes, metavar="CODE", help="Use these rules only: GS101,GS2 ...")
@click.option("--ignore", multiple=True, callback=_codes, metavar="CODE", help="Leave these rules out.")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="auto: on a terminal, unless NO_COLOR is set.",
)
@click.option("--reach", is_flag=True, help="Tell which loss reaches which parameters, and which stay unused.")
@click.option("--memory", is_flag=True, help="Tell what graphs keep for backward, and which lines and modules make it.")
@click.option("--why-clean", is_flag=True, help="List also what looked suspicious and was judged right, and why.")
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    metavar="N",
    help="End the program once each line that calls step() ran N times, or one of them 10 N times.",
)
@click.option("--no-arrays", is_flag=True, help="Leave numpy arrays as they are: for a program that minds a subclass.")
@click.option("--every-step", is_flag=True, help="Record all of a long run, also what only repeats the steps before.")
@click.option("--why", metavar="NAME", help="Tell why NAME, a parameter or module, gets a gradient or none.")
@click.option("--verify", is_flag=True, help="Run the program again with each fix that is an edit, and say which hold.")
@click.option("--diff", is_flag=True, help="Print the best fix of each finding on stdout, as a diff for `git apply`.")
@click.option("--tree", is_flag=True, help="Print the graph, too: an outline of its modules and operators.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...")
@shows
@click.pass_context
def inspect(
    context: click.Context,
    command: tuple[str, ...],
    module: str | None,
    graph: Path | None,
    format: str | None,
    output: Path | None,
    fail_on: str,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    color: str,
    steps: int | None,
    every_step: bool,
    no_arrays: bool,
    why_clean: bool,
    reach: bool,
    memory: bool,
    why: str | None,
    verify: bool,
    diff: bool,
    tree: bool,
    show: Show | None,
) -> None:
    """Run a Python script or module and report what is wrong with its autograd graphs.

    The program runs as `python SCRIPT ARGS` would run it; what it prints and how it fails stays the same.
    Options of graphscope come before SCRIPT; everything after SCRIPT belongs to the script, but for --graph FILE
    and `--` right after it. With -m, the arguments of the module come after `--`.

    \b
    Examples:
      graphscope inspect train.py --epochs 1
      graphscope inspect --steps 20 train.py
      graphscope inspect train.py --graph graph.svg
      graphscope inspect --path net.0.weight --graph way.svg train.py
      graphscope inspect --tree --depth 2 train.py
      graphscope inspect --format json -o report.json train.py
      graphscope inspect --select GS1 --fail-on warning train.py
      graphscope inspect -m package.module -- --epochs 1
      graphscope inspect --why net1.weight train.py
      graphscope inspect --verify --diff train.py

    \b
    Exit status:
      0  nothing at or above --fail-on
      1  something at or above --fail-on
      2  wrong usage, or an output that cannot be written
    A script that fails by itself, without such a finding, keeps its own status.

    A comment `# graphscope: ignore[GS204]` silences that code on its line. `graphscope explain CODE` tells
    what a code means.
    """
    program, args, graph = (module, command, graph) if module is not None else _taken_apart(command, graph)
    with paused_gc():
        analyze(Trace(), select=select, ignore=ignore)  # an unknown code is refused before the program runs
        from .. import api
        from ..tracer import script
    settle_gc()
    if graph is not None:
        check_picture(graph)
        graph = writable(graph)
    if verify or diff:
        _check_editor()
    form = format or format_of(output) or "text"
    # The streams and paths of now: the program may replace sys.stdout, or change the working directory.
    stream = sys.stderr if output is None else sys.stdout if str(output) == "-" else None
    file = writable(output) if output is not None and stream is None else None
    colored = is_colored(color, stream)
    if module is None:
        _check_syntax(Path(program))

    script.kept = []
    atexit.register(script.kept.clear)  # called last, as it is registered first
    started = time.monotonic()
    report = api.inspect(
        program,
        args=args,
        module=module is not None,
        every_step=every_step,
        steps=steps,
        arrays=not no_arrays,
        fades=why is not None,
        select=select,
        ignore=ignore,
    )
    if verify:
        with apart("--verify"):
            report = _verified(report, args, module is not None, time.monotonic() - started)

    if stream is not None:
        stream = still_open(stream, 2 if output is None else 1)
    rendered: str | bytes | None = None
    with apart(f"the {form} report"), patience(f"writing the {form} report"):
        if form == "text":
            text = discovery.module("renderers", "text")
            rendered = text.render(report, color=colored, cleared=why_clean, memory=memory, reach=reach)
        else:
            rendered = rendered_as(report, form, show)
    flush_stdout()
    if tree:
        with apart("--tree"):
            click.echo(rendered_as(report, "tree", show), file=stream or sys.stderr)
    if rendered is None:
        click.echo("\n".join(f"{each.location}: {each.code}: {each.message}" for each in report.findings), err=True)
    elif file is None:
        click.echo(rendered, file=stream, nl=isinstance(rendered, str) and not rendered.endswith("\n"), color=colored)
    else:
        file.write_bytes(rendered.encode() if isinstance(rendered, str) else rendered)
    if why is not None:
        flush_stdout()
        click.echo("\n\n".join(str(answer) for answer in answers(report.trace, why)), file=stream or sys.stderr)
    if diff:
        with apart("--diff"):
            _print_diff(report)
    drawn = graph is None
    if graph is not None:
        with apart(f"drawing {graph.name}"), patience(f"drawing {graph.name}"):
            drawn = _draw(report, graph, show)
    failed = fail_on != "never" and bool(report.at_least(Severity(fail_on)))
    context.exit(1 if failed else report.trace.outcome.status if drawn and rendered is not None else 2)


def _check_editor() -> None:
    if importlib.util.find_spec("libcst") is None:
        raise Problem("--verify and --diff need libcst: pip install 'torch-graphscope[fix]'")


def _verified(report: Report, args: Sequence[str], module: bool, seconds: float) -> Report:
    """The report with each fix tried; on a terminal, stderr tells which one is being tried."""
    from ..verify import verify

    def progress(line: str) -> None:
        if is_terminal(sys.stderr):
            click.echo(line, err=True)

    return verify(report, args, module=module, limit=max(60.0, 10 * seconds), progress=progress)


def _print_diff(report: Report) -> None:
    """Print the best fixes; those that no diff can hold together with the others are told on stderr."""
    from ..verify import best

    text, left_out = best(report)
    flush_stdout()
    click.echo(text, nl=False)
    if left_out:
        click.echo(
            f"{left_out} of the fixes cannot be in one diff with the others: run this again after them", err=True
        )


def _draw(report: Report, path: Path, show: Show | None) -> bool:
    """Write the picture; where that fails, say so in one line, as the report has been given already."""
    try:
        save(report, path, show)
    except GraphscopeError as error:
        click.echo(f"Error: {error}", err=True)
        return False
    return True


def _taken_apart(command: Sequence[str], graph: Path | None) -> tuple[str, Sequence[str], Path | None]:
    """The script, its own arguments and the picture's file; ``--graph FILE`` and ``--`` right after SCRIPT are ours."""
    match command:
        case []:
            raise click.UsageError("give a SCRIPT, or -m MODULE")
        case [script, "--graph", file, *args]:
            return _taken_apart([script, *args], Path(file))
        case [script, option, *args] if option.startswith("--graph="):
            return _taken_apart([script, *args], Path(option.removeprefix("--graph=")))
        case [script, "--", *args] | [script, *args]:
            return script, args, graph
    raise AssertionError(command)


def _check_syntax(script: Path) -> None:
    """Show a syntax error the way Python shows it; what is no script at all is refused by ``inspect``."""
    if script.is_fifo():  # can be read but once
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the script's own compilation gives them
            compile(script.read_bytes(), str(script.absolute()), "exec", dont_inherit=True)
    except SyntaxError as error:
        click.echo("".join(traceback.format_exception_only(error)), err=True, nl=False)
        raise click.exceptions.Exit(2) from None
    except (OSError, ValueError):
        pass
