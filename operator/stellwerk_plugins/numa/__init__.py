"""NodeResourceTopologyMatch: nodes whose kubelet finds a NUMA zone for the pod, and better ones."""
