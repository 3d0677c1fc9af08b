"""`stellwerk` on a machine of a given name, as a pod is one: `-m tests.support.pod_host NAME …`.

The name stands in the lease, by which commands and steps find the pod that leads.
"""

import socket
import sys

from stellwerk_cli.cli import main

if __name__ == "__main__":
    _name = sys.argv.pop(1)
    socket.gethostname = lambda: _name
    sys.exit(main())
