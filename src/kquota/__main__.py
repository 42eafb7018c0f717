"""``python -m kquota``."""

from kquota.cli import main

main()
