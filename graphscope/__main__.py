"""``python -m graphscope`` is the ``graphscope`` command."""

from .cli import main

main(prog_name="graphscope")
