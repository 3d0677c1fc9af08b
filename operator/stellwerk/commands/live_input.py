"""A live cluster as what `simulate` and `plan` work on.

Both hand it to the simulation's package, which knows no cluster. Invariant: a client is loaded only
when a cluster is asked.
"""

from stellwerk.models.json_values import JsonObject


def live_input(kubeconfig: str, context: str | None) -> list[JsonObject]:
    """The objects of the cluster that a kubeconfig names.

    Raises:
        ConfigurationError: the cluster cannot be reached as configured.
        ApiError: a list failed.
    """
    from stellwerk.commands.live_objects import read_live_objects  # noqa: PLC0415 aiohttp

    return read_live_objects(kubeconfig, context)
