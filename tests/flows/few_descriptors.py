"""`python -m tests.flows.few_descriptors run …`: a command that may open 64 descriptors."""

import resource
import sys

from stellwerk_cli.cli import main

DESCRIPTORS = 64

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    sys.exit(main())
