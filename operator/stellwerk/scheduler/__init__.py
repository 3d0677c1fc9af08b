"""The loop from a queued pod to a binding: one scheduling coroutine, many tasks. Start here."""
