"""With `--json` an error is one object on stdout, beside the words on stderr."""

from __future__ import annotations

import json
import sys


def print_json_error(message: str, hint: str | None, exit_code: int) -> None:
    """Print the object, if the command line asks for JSON."""
    if "--json" in sys.argv[1:]:
        print(json.dumps({"error": message, "hint": hint, "exit_code": exit_code}, ensure_ascii=False), flush=True)
