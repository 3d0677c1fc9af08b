"""Write the table of the fields of pods and nodes, from the embedded cluster's tables of the API.

`python -m tests.structure.api_fields` writes it; tests/structure holds the file to the tables.
"""

import json

from stellwerk_kube.pod_templates import TEMPLATE_KINDS
from stellwerk_kube.schema.types import types
from tests.support.repository import ROOT

FILE = ROOT / "operator" / "stellwerk_kube" / "api_fields.json"


def table() -> str:
    """The types that pods, templates of pods and nodes lead to, a type a line."""
    known, found, left = types(), dict[str, dict[str, str]](), [*TEMPLATE_KINDS, "Node"]
    while left:
        name = left.pop().strip("[]{}")
        if name in known and name not in found:
            found[name] = {each.name: each.type for each in known[name].values()}
            left += found[name].values()
    lines = (f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found))
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(table(), encoding="utf-8")
