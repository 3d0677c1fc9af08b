"""The files of the chart that are made: profiles in the schema of its values, and its README.

`python -m tests.flows.chart_files` writes them anew, of the CRD and of `values.yaml`.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from stellwerk.profiles.spec.crd import crd_manifest, json_schema
from tests.support.repository import ROOT

CHART: Final = ROOT / "charts" / "stellwerk"
SCHEMA: Final = CHART / "values.schema.json"
README: Final = CHART / "README.md"
_KEY: Final = re.compile(r"( *)([A-Za-z]+):")


def profile_schema() -> dict[str, Any]:
    """The schema of a profile's spec in JSON Schema's words; a profile serves, or shadows one."""
    (version,) = crd_manifest()["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    either = [{"required": ["schedulerName"]}, {"required": ["shadowOf"]}]
    return {**json_schema(spec), "anyOf": either}


def schema_text() -> str:
    """The text of `values.schema.json` as it should be."""
    schema = json.loads(SCHEMA.read_text())
    schema["properties"]["profiles"] = {
        "type": "object",
        "additionalProperties": profile_schema(),
    }
    return json.dumps(schema, indent=2) + "\n"


def readme_text() -> str:
    """The text of the chart's README as it should be."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    head = _HEAD.format(description=chart["description"], kubernetes=chart["kubeVersion"])
    rows = [f"| `{path}` | `{default}` | {text} |" for path, default, text in _values()]
    return "\n".join([head, "| value | default | |", "|---|---|---|", *rows]) + "\n"


_HEAD: Final = """# stellwerk

{description} Kubernetes {kubernetes}.

```
helm install stellwerk charts/stellwerk --namespace stellwerk --create-namespace \\
  --set image.repository=YOUR/stellwerk
helm test stellwerk --namespace stellwerk
```

docs/operations.md goes through installing, upgrading, a second release and uninstalling command by
command.

## Values
"""


def _values() -> Iterator[tuple[str, str, str]]:
    """(path, default as JSON, what the comment above it says) of each value that has no fields."""
    text = (CHART / "values.yaml").read_text()
    values, path, said = yaml.safe_load(text), list[str](), list[str]()
    comments: dict[int, str] = {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            if not stripped.startswith("#  "):  # no example
                said.append(stripped.removeprefix("#").strip())
        elif match := _KEY.match(line):
            level = len(match[1]) // 2
            path[level:] = [match[2]]
            comments = {at: each for at, each in comments.items() if at < level}
            if said:
                comments[level] = " ".join(said)
            said = []
            default = values
            for key in path:
                default = default[key]
            if path[0] in _WHOLE and level > 0:
                continue
            if not isinstance(default, dict) or not default or path[0] in _WHOLE:
                above = comments.pop(level, "") or comments.pop(level - 1, "")
                yield ".".join(path), json.dumps(default), above.replace("|", "\\|")
        elif not stripped:
            said = []


_WHOLE: Final = frozenset({"podSecurityContext", "securityContext", "probes", "resources"})
"""Values that are shown as one."""


if __name__ == "__main__":
    SCHEMA.write_text(schema_text())
    README.write_text(readme_text())
