"""The Kubernetes API itself: storage, verbs, schemas and HTTP, without any controller."""
