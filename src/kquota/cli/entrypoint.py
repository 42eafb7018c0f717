"""The script for spark-submit: ``spark-submit $(kquota pipeline entrypoint) STEP ...`` runs that pipeline step."""

import sys

from kquota.cli import main

if __name__ == "__main__":
    main(["pipeline", *sys.argv[1:]])
