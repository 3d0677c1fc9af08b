"""What DefaultPreemption and CrossNodePreemption share, or would be too long with.

Dry runs and their results, the search for victims over several nodes, the order of victims, and
disruption budgets.
"""
