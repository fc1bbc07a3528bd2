"""``python -m ptxlab`` is the command ``ptxlab``."""

from ptxlab.cli.main import main

main()
