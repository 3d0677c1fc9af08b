"""What a simulation of the published experiment costs: `make bench-simulate`.

Prints CPU seconds of one run per profile, the default trace at 130 % with one seed, in one process
and without reading the trace. The traces are not part of the project: TRACES names their folder.
"""

import os
import sys
import time
from pathlib import Path

from stellwerk_simulation.arrivals import typical_pods
from stellwerk_simulation.experiment import Experiment
from stellwerk_simulation.ready_profiles import READY, profile_of
from stellwerk_simulation.simulation import Simulation, SimulationOptions
from tests.support.gpu_cluster import TRACES

_SEED = 42


def main() -> int:
    """Run every ready profile once."""
    traces = Path(os.environ.get("TRACES") or TRACES)
    nodes, pods = traces / "openb_node_list_gpu_node.csv.xz", "openb_pod_list_default.csv.xz"
    if not nodes.exists():
        print(f"no traces in {traces}: name their folder in TRACES", file=sys.stderr)
        return 1
    experiment = Experiment.read(nodes, traces / pods, 1.3)
    typical, arrivals = typical_pods(experiment.pods), experiment.arrivals(_SEED)
    count = len(arrivals.pods)
    print(f"{len(arrivals.nodes)} nodes, {count} arrivals, CPU seconds, plans included")
    for name in sys.argv[1:] or READY:
        profile = profile_of(name, typical, experiment.pods)
        started = time.process_time()
        simulation = Simulation(
            arrivals, profile, typical, _SEED, SimulationOptions(plan_seconds=30.0)
        )
        simulation.run(arrivals.pods, lambda _: None)
        seconds = time.process_time() - started
        print(f"{name:16} {seconds:6.1f} s  {1000 * seconds / count:5.2f} ms a pod")
    return 0


if __name__ == "__main__":
    sys.exit(main())
