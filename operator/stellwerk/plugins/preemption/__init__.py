"""What the preemption plugins share: dry runs, the order of victims, disruption budgets."""
