"""A peer that computes the wrong thing."""

import json
import sys
from pathlib import Path


def wrong_peer(folder: Path) -> Path:
    """Write an interpreter for peers: whatever it is asked for, its loss is 1."""
    script = folder / "python"
    hello = {"version": "1", "variants": [{"name": "x", "batched": True}], "memory": 1}
    lines = [
        f"#!{sys.executable}",
        "import sys",
        f"print({json.dumps(json.dumps(hello))}, flush=True)",
        'for _ in sys.stdin: print(\'{"loss": 1.0, "seconds": 1.0}\', flush=True)',
    ]
    script.write_text("\n".join(lines), encoding="utf-8")
    script.chmod(0o755)
    return script
