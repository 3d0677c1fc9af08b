"""The meaning of Kubernetes' texts: quantities, names, selectors, YAML files, CEL; limits of ports.

Every other package builds on this one. Invariant: it imports none of them and knows no scheduler.
"""
