"""GPUs for several plugins: free parts of devices, their fragmentation, and plans of patterns."""
