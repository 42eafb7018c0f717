"""The script for spark-submit: ``spark-submit $(kquota pipeline entrypoint) STEP ...`` runs a step, or ``analyze``."""

import sys

from kquota.cli import main

if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(arguments if arguments[:1] == ["analyze"] else ["pipeline", *arguments])
