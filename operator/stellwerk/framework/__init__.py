"""The contract between scheduler and plugins: extension points, statuses and their runtime."""
