"""The command line: arguments, output files and exit status."""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import json
import os
import re
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import click

from . import __version__, discovery
from ._collector import paused_gc, settle_gc
from .analyzer import analyze
from .errors import GraphscopeError, internal_error, is_debugged
from .findings import Severity
from .report import Report, is_picture, render, save
from .rule import Rule, all_rules, explanation
from .show import BOXES, Show
from .trace import Trace
from .why import answers

_LONG = 2.0  # seconds that pass before stderr tells what takes them


class _Problem(click.ClickException):
    """Something that the user can mend: one line on stderr, exit status 2."""

    exit_code = 2


class _Commands(click.Group):
    """Commands that tell every misuse in one line."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            command = (error.ctx or ctx).command_path
            raise _Problem(f"{error.format_message()} (see `{command} --help`)") from None
        except GraphscopeError as error:
            raise _Problem(str(error)) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="graphscope")
def main() -> None:
    """See the autograd graph of a PyTorch program, and what is wrong with its training step.

    \b
    Start here:
      graphscope inspect train.py                  run train.py and report what was found
      graphscope inspect train.py --graph g.svg    ... and draw its autograd graph
      graphscope inspect -o run.trace train.py     ... and save all that was seen, for:
      graphscope render run.trace -o g.svg         draw it again, or another part of it
      graphscope compare old.trace run.trace       what changed between two runs
      graphscope explain GS101                     why that is wrong, and how it looks when right
      graphscope explain "RuntimeError: ..."       which rule a message of torch belongs to
      graphscope rules                             all rules

    \b
    What the codes mean:
      GS1xx  the graph's life: backward, freed buffers, versions, retain_graph
      GS2xx  where gradients stop: cuts, parameters that no loss reaches, no graph
      GS3xx  the training step: zero_grad, step, accumulation, clipping
      GS4xx  several processes

    \b
    Severities:
      error    torch raises, or something meant to train does not, or a gradient is wrong
      warning  allowed, seldom meant
      note     worth knowing
    """


def _codes(_context: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    return tuple(code.strip().upper() for value in values for code in value.split(",") if code.strip())


def _shows(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which part of the graph a picture shows; the command gets them as ``show``."""
    options = [
        click.option(
            "--depth",
            type=click.IntRange(min=1),
            metavar="N",
            help="Draw each module N names deep as one box: 2 closes net.layer3, with all that is inside of it.",
        ),
        click.option("--focus", metavar="MODULE", help="Open this module alone, net.layer3 say, and close the others."),
        click.option(
            "--around", metavar="WHAT", help="Draw what is next to a tensor or node only: a name, tensor:3 or node:17."
        ),
        click.option("--path", metavar="PARAMETER", help="Mark the gradient's way from the losses to a parameter."),
        click.option(
            "--full", is_flag=True, help=f"Draw every operator.  [default: as much as goes into some {BOXES} boxes]"
        ),
    ]

    @functools.wraps(command)
    def shown(
        *args: Any, depth: int | None, focus: str | None, around: str | None, path: str | None, full: bool, **rest: Any
    ) -> None:
        show = Show(boxes=0 if full else BOXES, depth=depth, focus=focus, around=around, path=path)
        command(*args, show=None if show == Show() else show, **rest)

    return functools.reduce(lambda decorated, option: option(decorated), reversed(options), shown)


@main.command(context_settings={"allow_interspersed_args": False}, options_metavar="[OPTIONS]")
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
@_shows
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
        from . import api
        from .tracer import script
    settle_gc()
    if graph is not None:
        _check_picture(graph)
        graph = _writable(graph)
    if verify or diff:
        _check_editor()
    form = format or _format_of(output) or "text"
    # The streams and paths of now: the program may replace sys.stdout, or change the working directory.
    stream = sys.stderr if output is None else sys.stdout if str(output) == "-" else None
    file = _writable(output) if output is not None and stream is None else None
    colored = _is_colored(color, stream)
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
        with _apart("--verify"):
            report = _verified(report, args, module is not None, time.monotonic() - started)

    if stream is not None:
        stream = _still_open(stream, 2 if output is None else 1)
    rendered: str | bytes | None = None
    with _apart(f"the {form} report"), _patience(f"writing the {form} report"):
        if form == "text":
            text = discovery.module("renderers", "text")
            rendered = text.render(report, color=colored, cleared=why_clean, memory=memory, reach=reach)
        else:
            rendered = _rendered(report, form, show)
    _flush_stdout()
    if tree:
        with _apart("--tree"):
            click.echo(_rendered(report, "tree", show), file=stream or sys.stderr)
    if rendered is None:
        click.echo("\n".join(f"{each.location}: {each.code}: {each.message}" for each in report.findings), err=True)
    elif file is None:
        click.echo(rendered, file=stream, nl=isinstance(rendered, str) and not rendered.endswith("\n"), color=colored)
    else:
        file.write_bytes(rendered.encode() if isinstance(rendered, str) else rendered)
    if why is not None:
        _flush_stdout()
        click.echo("\n\n".join(str(answer) for answer in answers(report.trace, why)), file=stream or sys.stderr)
    if diff:
        with _apart("--diff"):
            _print_diff(report)
    drawn = graph is None
    if graph is not None:
        with _apart(f"drawing {graph.name}"), _patience(f"drawing {graph.name}"):
            drawn = _draw(report, graph, show)
    failed = fail_on != "never" and bool(report.at_least(Severity(fail_on)))
    context.exit(1 if failed else report.trace.outcome.status if drawn and rendered is not None else 2)


@contextlib.contextmanager
def _apart(what: str) -> Iterator[None]:
    """A failure of our own in one part of the output costs no other part: it is told in a line."""
    try:
        yield
    except (GraphscopeError, click.ClickException, click.exceptions.Exit):
        raise
    except Exception as error:
        if is_debugged():
            raise
        click.echo(f"Error: {what} failed with {internal_error(error)}", err=True)


@contextlib.contextmanager
def _patience(what: str) -> Iterator[None]:
    """Say on a terminal what is going on, if it takes long."""
    timer = threading.Timer(_LONG, lambda: click.echo(f"graphscope: {what} ...", err=True))
    timer.daemon = True
    if _is_terminal(sys.stderr):
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _still_open(stream: TextIO, number: int) -> TextIO:
    """The stream, or where it led to, if the program has closed it."""
    return open(number, "w", closefd=False) if stream.closed else stream


def _check_editor() -> None:
    if importlib.util.find_spec("libcst") is None:
        raise _Problem("--verify and --diff need libcst: pip install 'torch-graphscope[fix]'")


def _verified(report: Report, args: Sequence[str], module: bool, seconds: float) -> Report:
    """The report with each fix tried; on a terminal, stderr tells which one is being tried."""
    from .verify import verify

    def progress(line: str) -> None:
        if _is_terminal(sys.stderr):
            click.echo(line, err=True)

    return verify(report, args, module=module, limit=max(60.0, 10 * seconds), progress=progress)


def _print_diff(report: Report) -> None:
    """Print the best fixes; those that no diff can hold together with the others are told on stderr."""
    from .verify import best

    text, left_out = best(report)
    _flush_stdout()
    click.echo(text, nl=False)
    if left_out:
        click.echo(
            f"{left_out} of the fixes cannot be in one diff with the others: run this again after them", err=True
        )


def _rendered(report: Report, form: str, show: Show | None) -> str | bytes:
    return render(report, form, show if is_picture(form) else None)


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


def _check_picture(path: Path) -> None:
    if _format_of(path) is None:
        known = ", ".join(f".{name}" for name in discovery.names("renderers"))
        raise _Problem(f"cannot tell a format from {path.name!r}: give a name that ends in one of {known}")


def _format_of(path: Path | None) -> str | None:
    suffix = path.suffix.lower().lstrip(".") if path is not None else ""
    format = {"txt": "text"}.get(suffix, suffix)
    return format if format in discovery.names("renderers") else None


def _writable(path: Path) -> Path:
    """The absolute path, once it is known that it can be written; its contents stay as they are."""
    try:
        existed = os.path.lexists(path)
        if not existed or path.is_file() or path.is_dir():  # opening a pipe or a device would be noticed
            path.open("ab").close()
        if not existed:
            path.unlink()
    except OSError as error:
        raise _Problem(f"cannot write {path}: {error.strerror}") from None
    return path.absolute()


def _is_colored(choice: str, stream: TextIO | None) -> bool:
    if choice != "auto":
        return choice == "always"
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream is not None and stream.isatty() and not plain


def _is_terminal(stream: TextIO) -> bool:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or replaced by the program
        return stream.isatty()
    return False


def _flush_stdout() -> None:
    """Let what the program printed come before the report where both go to the same place."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or replaced by the program
        sys.stdout.flush()


@main.command("render")
@click.argument("trace", type=click.Path(path_type=Path), metavar="TRACE")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What to write; the suffix says how: .svg .png .pdf .dot .mmd .graphml .html .json  [default: print text]",
)
@_shows
def render_trace(trace: Path, output: Path | None, show: Show | None) -> None:
    """Draw again from a saved trace: another part of it, or in another format.

    `graphscope inspect -o run.trace SCRIPT` saves one. The program is not run again, and torch is not needed.

    \b
    Examples:
      graphscope render run.trace -o graph.svg
      graphscope render run.trace --focus net.layer3 -o layer3.svg
      graphscope render run.trace --path net.0.weight -o way.png
      graphscope render run.trace --depth 2           print that part as an outline
    """
    from .archive import load

    if output is not None:
        _check_picture(output)
    report = load(trace)
    if output is not None:
        save(report, _writable(output), show)
    elif show is not None:
        click.echo(_rendered(report, "tree", show), nl=False)
    else:
        click.echo(_rendered(report, "text", None), nl=False)


@main.command()
@click.argument("before", type=click.Path(path_type=Path), metavar="BEFORE")
@click.argument("after", type=click.Path(path_type=Path), metavar="AFTER")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw both graphs as one picture into FILE: .svg .png .pdf .dot .mmd",
)
@_shows
@click.pass_context
def compare(context: click.Context, before: Path, after: Path, output: Path | None, show: Show | None) -> None:
    """Tell what changed between two saved traces: nodes, parameters reached, saved bytes, findings.

    In the picture, what only AFTER has is marked new, what only BEFORE has is marked gone. Lines may have moved: a
    finding is the same if its code, file, function and words are. Exits with 1 if a finding is new.

    \b
    Example:
      graphscope inspect -o before.trace train.py
      graphscope inspect -o after.trace train.py       # after a change
      graphscope compare before.trace after.trace -o changes.svg
    """
    from .archive import load

    comparison = discovery.module("renderers", "_comparison")
    if output is not None:
        _check_picture(output)
        if not is_picture(str(_format_of(output))):
            raise _Problem(
                f"{output.name} would be no picture: give a name that ends in .svg, .png, .pdf, .dot or .mmd"
            )
    found = comparison.compare(load(before), load(after), (before.name, after.name))
    click.echo(comparison.text(found), nl=False)
    if output is not None:
        report, changes = comparison.merged(found)
        save(report, _writable(output), replace(show or Show(), changes=changes.changes))
    context.exit(1 if found.new else 0)


@main.command()
@click.option("--format", type=click.Choice(["table", "markdown", "json"]), default="table", show_default=True)
def rules(format: str) -> None:
    """List all rules: code, severity, name and what they find."""
    rows = [(rule.code, rule.severity.value, rule.name(), explanation(rule).summary) for rule in all_rules()]
    columns = ("code", "severity", "name", "summary")
    if format == "json":
        click.echo(json.dumps([dict(zip(columns, row, strict=True)) for row in rows], indent=2))
    elif format == "markdown":
        for row in (columns, ("---",) * len(columns), *rows):
            click.echo(f"| {' | '.join(row)} |")
    else:
        widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
        for row in rows:
            click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@main.command()
@click.argument("subject", nargs=-1, required=True, metavar="CODE|NAME|MESSAGE|-")
def explain(subject: tuple[str, ...]) -> None:
    """Explain a rule, or tell which rules a message of torch belongs to.

    \b
    Examples:
      graphscope explain GS101
      graphscope explain "Trying to backward through the graph a second time"
      python train.py 2>&1 | graphscope explain -
    """
    text = " ".join(subject)
    if text == "-":
        text = sys.stdin.read()
    text = " ".join(text.split())
    for rule in all_rules():
        if text.lower() in (rule.code.lower(), rule.name()):
            click.echo(_page(rule))
            return
    if re.fullmatch(r"GS\d*", text, re.IGNORECASE):
        raise _Problem(f"no rule has the code {text!r}: `graphscope rules` lists them")
    known = [rule for rule in all_rules() if _recognises(rule, text)]
    if not known:
        raise _Problem("no rule knows this message: `graphscope inspect SCRIPT` examines the program itself")
    script = re.search(r'File "([^"]+\.py)", line \d+', text)  # the outermost frame of a traceback comes first
    for rule in known:
        click.echo(f"{rule.code} {rule.name()}: {explanation(rule).summary}")
    click.echo(f"\nTo find the lines:  graphscope inspect {script[1] if script else 'SCRIPT'}")
    for rule in known:
        click.echo(f"To read more:       graphscope explain {rule.code}")


def _recognises(rule: type[Rule], text: str) -> bool:
    patterns: tuple[str, ...] = getattr(rule, "torch_messages", ())
    return any(re.search(pattern, text, re.IGNORECASE) for pattern in patterns)


def _page(rule: type[Rule]) -> str:
    """A rule's docstring as a page: what, why, then bad and good examples."""
    about = explanation(rule)
    parts = [f"{rule.code} {rule.name()} ({rule.severity.value})", about.summary, about.reason]
    for example in about.examples:
        parts += [f"{example.title}:", "\n".join(f"    {line}".rstrip() for line in example.source.splitlines())]
    return "\n\n".join(part for part in parts if part)
