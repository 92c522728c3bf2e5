"""Options that commands share: which of a plan's runs it is and, where a model is loaded, what of a machine plans leave open."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Backend = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="BACKEND",
        help="Which of the plan's `policy.backend` and `policy.also` it is the run of; another than the first has the folder "
        "runs/NAME-BACKEND. Else ABLATION_POLICY, else the first.",
    ),
]
Turns = Annotated[
    str | None,
    typer.Option(
        "--turns",
        metavar="MODE",
        help="How vLLM and the trainer share a device: together, restart, sleep or auto. Else ABLATION_TURNS, else auto.",
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        metavar="N",
        help="Divide the model that is trained over N processes, each with a GPU of its own where there are GPUs. Else "
        "ABLATION_PROCESSES, else 1.",
    ),
]
Server = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="The vLLM server of `policy.vllm.engine: server`. Else ABLATION_VLLM_SERVER."),
]
ServerFolder = Annotated[
    Path | None,
    typer.Option(
        "--server-folder", help="A folder that the server reads adapters from, under this path. Else ABLATION_VLLM_SERVER_FOLDER."
    ),
]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="ray[=ADDRESS]",
        help="Do the work on a Ray cluster: `ray` for this machine's own cores and GPUs, `ray=auto`, or `ray=HOST:PORT`.",
    ),
]
