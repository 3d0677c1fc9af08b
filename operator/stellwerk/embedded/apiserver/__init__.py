"""The API of the embedded cluster: discovery, storage, watch and subresources over HTTP."""
