"""The two pictures of the README: `make pictures` draws them from a real run of `stellwerk up`.

`docs/pictures/explain.svg` is the answer of `stellwerk explain pod` in a terminal, and
`docs/pictures/page.png` an explanation in the page. The second needs chromium and Playwright
(`make tools`); without them only the first is drawn.
"""

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

FOLDER: Final = Path(__file__).parent / "pictures"
STELLWERK: Final = Path(sys.executable).parent / "stellwerk"
START_SECONDS: Final = 60
COLUMNS: Final = 98
IMAGE: Final = "registry.k8s.io/pause:3.10"
CPUS: Final = {"node-1": "4", "node-2": "4", "node-3": "4", "node-4": "8", "node-5": "4"}
THEME: Final = TerminalTheme(
    (30, 36, 40),
    (222, 228, 230),
    [
        *((30, 36, 40), (214, 96, 77), (104, 179, 146), (222, 178, 82)),
        *((106, 159, 211), (178, 148, 216), (86, 182, 194), (222, 228, 230)),
    ],
)


def nodes() -> Iterator[dict[str, Any]]:
    """Five nodes of two sizes: one is tainted, one cordoned."""
    for name, cpu in CPUS.items():
        room = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
        spec: dict[str, Any] = {}
        if name == "node-3":
            spec = {"taints": [{"key": "team", "value": "ml", "effect": "NoSchedule"}]}
        if name == "node-5":
            spec = {"unschedulable": True}
        status = {"capacity": room, "allocatable": room}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "spec": spec,
            "status": status,
        }


def pod(name: str, cpu: str) -> dict[str, Any]:
    """A pod that requests an amount of CPU."""
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    container = {"name": "main", "image": IMAGE, "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container]},
    }


@contextmanager
def running(folder: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    """`stellwerk up` with the nodes: the page's address, and an environment for commands."""
    (folder / "nodes.yaml").write_text(yaml.safe_dump_all(nodes()), encoding="utf-8")
    kubeconfig, log = folder / "kubeconfig", folder / "up.log"
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "COLUMNS": str(COLUMNS)}
    command = [STELLWERK, "up", "--nodes", folder / "nodes.yaml", "--kubeconfig", kubeconfig]
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        limit = time.monotonic() + START_SECONDS
        while "Stop:" not in (text := log.read_text(encoding="utf-8")):
            if process.poll() is not None or time.monotonic() > limit:
                raise SystemExit(text)
            time.sleep(0.1)
        (url,) = re.findall(r"^Page: +(\S+)", text, re.MULTILINE)
        yield url, environment
    finally:
        process.terminate()
        process.wait()


def draw_terminal(command: str, printed: str, file: Path) -> None:
    """Write a command and what it printed as a picture of a terminal, with the reader's fonts."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
    for number, line in enumerate(printed.rstrip().splitlines()):
        is_head = number == 0 or line.endswith(":") or line.startswith("NODES ")
        console.print(Text(line, style="bold" if is_head else ""))
    drawn = console.export_svg(title="stellwerk", theme=THEME, unique_id="terminal")
    # rich names fonts of a foreign server; the picture takes the monospaced font of its reader.
    drawn = re.sub(r"@font-face \{.*?\}\n", "", drawn, flags=re.DOTALL)
    drawn = drawn.replace("Fira Code", "ui-monospace")
    file.write_text(re.sub(r"[ \t]+$", "", drawn, flags=re.MULTILINE), encoding="utf-8")


def draw_page(url: str, file: Path) -> None:
    """Write a picture of an address, as headless Chromium shows it."""
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415 `make tools` installs it
    except ImportError:
        chromium = None
    if chromium is None:
        print(f"{file.name} is not drawn: it needs chromium and Playwright (make tools)")
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 1100, "height": 600})
        opened.goto(url)
        opened.goto(f"{url.partition('?')[0]}pods/default/web-4")
        opened.wait_for_load_state("networkidle")
        opened.screenshot(path=file, full_page=True)
        browser.close()


def main() -> None:
    """Draw both pictures."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as made, running(Path(made)) as (url, environment):
        kubectl = ("kubectl", "apply", "--server-side", "-f", "-")
        waiting = ("kubectl", "wait", "--for=condition=PodScheduled", "--timeout=30s")
        for number in range(1, 5):
            text = yaml.safe_dump(pod(f"web-{number}", "500m"))
            subprocess.run(kubectl, input=text, text=True, env=environment, check=True)
            subprocess.run((*waiting, f"pod/web-{number}"), env=environment, check=True)
        text = yaml.safe_dump(pod("too-large", "10"))
        subprocess.run(kubectl, input=text, text=True, env=environment, check=True)
        status = ("--for=condition=PodScheduled=false", "--timeout=30s", "pod/too-large")
        subprocess.run(("kubectl", "wait", *status), env=environment, check=True)
        command = "stellwerk explain pod too-large"
        done = subprocess.run(
            [STELLWERK, *command.split()[1:]],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        draw_terminal(command, done.stdout, FOLDER / "explain.svg")
        draw_page(url, FOLDER / "page.png")
    for each in sorted(FOLDER.iterdir()):
        print(f"{each.relative_to(Path.cwd())}: {each.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
