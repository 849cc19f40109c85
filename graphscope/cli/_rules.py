"""``graphscope rules`` and ``graphscope explain``: what graphscope knows."""

from __future__ import annotations

import json
import re
import sys

import click

from ..rule import Rule, all_rules, explanation
from ._problem import Problem


@click.command()
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


@click.command()
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
        raise Problem(f"no rule has the code {text!r}: `graphscope rules` lists them")
    known = [rule for rule in all_rules() if _recognises(rule, text)]
    if not known:
        raise Problem("no rule knows this message: `graphscope inspect SCRIPT` examines the program itself")
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
