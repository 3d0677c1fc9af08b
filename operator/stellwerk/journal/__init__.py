"""What happened in a cluster and what was decided, as a file: written, bounded, read again."""
