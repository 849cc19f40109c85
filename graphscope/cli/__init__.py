"""The command line: arguments, output files and exit status."""

from __future__ import annotations

import click

from .. import __version__
from ._inspect import inspect
from ._problem import Commands
from ._rules import explain, rules
from ._traces import compare, render_trace


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
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


for command in (inspect, render_trace, compare, rules, explain):
    main.add_command(command)
