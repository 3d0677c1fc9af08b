"""`stellwerk demo`: examples of the Kubernetes documentation, scheduled before one's eyes."""
