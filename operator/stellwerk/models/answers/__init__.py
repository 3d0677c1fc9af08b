"""What the operator's port answers, as values: explanations, suppositions, listings."""
