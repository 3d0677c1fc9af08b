"""The cluster as columns: what a scheduling cycle reads and no plugin writes."""
