"""Questions as commands to copy, for users who want an answer in a terminal or a script.

Views make a line for each answer. Invariant: whatever a name holds, a shell takes it as one word.
"""

import re
from collections.abc import Mapping
from shlex import quote

_END = "END"
_FILES = {"profile": "--profile", "nodes": "--add-nodes", "pod": "--pod"}
_UNSAFE = re.compile(r"[^A-Za-z0-9.-]+")


def command(*words: str) -> str:
    """The words as a shell reads them; empty ones are left out."""
    return " ".join(quote(word) for word in words if word)


def what_if_command(form: Mapping[str, str]) -> str:
    """The question of a form, with its manifests as files that are written before."""
    lines, words = [], ["stellwerk", "what-if"]
    for field, option in _FILES.items():
        text = form.get(field, "").replace("\r\n", "\n").strip("\n")
        if not text.strip():
            continue
        end = _END
        while f"\n{end}\n" in f"\n{text}\n":
            end += _END
        lines.append(f"cat > {field}.yaml <<'{end}'\n{text}\n{end}\n")
        words += [option, f"{field}.yaml"]
        if field == "nodes" and form.get("count", "1").strip() not in {"", "1"}:
            words += ["--count", form["count"].strip()]
    drain = form.get("drain", "").strip()
    words += ["--drain", drain] if drain else []
    return "".join(lines) + command(*words)


def file_name(path: str) -> str:
    """The name of the file for the answer of a page."""
    return (_UNSAFE.sub("-", path).strip("-.") or "overview")[:100] + ".json"
