"""Puts a plan's start adapter onto a SkyRL server of one's own, and prints the address that a run needs. Run it as

    python -m ablation.recipes.skyrl_start PLAN --checkpoints FOLDER

FOLDER is what the server was started with as `--checkpoints-base`; both see it. Address and key are those of a run.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from ablation.errors import AblationError
from ablation.plan.load import load_plan
from ablation.plan.locate import locate
from ablation.policy.tinker.service import Denied, Service
from ablation.policy.tinker.skyrl_start import put_start
from ablation.study.service import SERVER

PATIENCE = 180.0
"""Seconds for a server that was started a moment ago."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Put a plan's start adapter onto a SkyRL server; prints its address.")
    parser.add_argument("plan", type=Path, help="the plan's YAML file")
    parser.add_argument("--checkpoints", type=Path, required=True, help="the server's --checkpoints-base")
    given = parser.parse_args()
    try:
        plan = load_plan(given.plan).plan
        service = Service(os.environ.get(SERVER) or None, lambda words: print(words, file=sys.stderr), PATIENCE)
        print(put_start(plan, locate(plan.model.start_adapter, given.plan), service, given.checkpoints))
    except AblationError as error:
        sys.exit("\n".join(error.lines()))
    except Denied as denied:
        sys.exit(f"{service.where}: {denied}")


if __name__ == "__main__":
    main()
