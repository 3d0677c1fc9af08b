"""What `stellwerk doctor` looks at, and the support bundle that it writes."""
