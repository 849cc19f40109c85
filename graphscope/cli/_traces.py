"""``graphscope render`` and ``graphscope compare``: what is done with saved traces."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from .. import discovery
from ..report import is_picture, save
from ..show import Show
from ._output import check_picture, format_of, rendered_as, writable
from ._problem import Problem
from ._show import shows


@click.command("render")
@click.argument("trace", type=click.Path(path_type=Path), metavar="TRACE")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What to write; the suffix says how: .svg .png .pdf .dot .mmd .graphml .html .json  [default: print text]",
)
@shows
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
    from ..archive import load

    if output is not None:
        check_picture(output)
    report = load(trace)
    if output is not None:
        save(report, writable(output), show)
    elif show is not None:
        click.echo(rendered_as(report, "tree", show), nl=False)
    else:
        click.echo(rendered_as(report, "text", None), nl=False)


@click.command()
@click.argument("before", type=click.Path(path_type=Path), metavar="BEFORE")
@click.argument("after", type=click.Path(path_type=Path), metavar="AFTER")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw both graphs as one picture into FILE: .svg .png .pdf .dot .mmd",
)
@shows
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
    from ..archive import load

    comparison = discovery.module("renderers", "_comparison")
    if output is not None:
        check_picture(output)
        if not is_picture(str(format_of(output))):
            raise Problem(f"{output.name} would be no picture: give a name that ends in .svg, .png, .pdf, .dot or .mmd")
    found = comparison.compare(load(before), load(after), (before.name, after.name))
    click.echo(comparison.text(found), nl=False)
    if output is not None:
        report, changes = comparison.merged(found)
        save(report, writable(output), replace(show or Show(), changes=changes.changes))
    context.exit(1 if found.new else 0)
