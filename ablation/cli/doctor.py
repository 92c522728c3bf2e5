"""`ablation doctor`: does this machine's engine sample what the plan trains?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from ablation.cli.fit import echo
from ablation.cli.machine_options import Backend, Processes, Server, ServerFolder, Turns


def doctor(
    plan: Path = typer.Option(None, "--plan", help="The plan, locked or not. Left out: the only locked one in plans/."),
    policy: Backend = None,
    turns: Turns = None,
    server: Server = None,
    server_folder: ServerFolder = None,
    processes: Processes = None,
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout; everything else goes to stderr."),
) -> None:
    """Load the plan's model and engine as a run would, and prove that they agree. Nothing is written.

    With `policy: {backend: vllm}`: an adapter on each kind of module changes vLLM's logprobs by what the trainer says, one of all
    zeros by nothing, tokens come as often as the plan's values make them, and the longest rollout fits. Exit 3: it is not so.
    """
    from ablation.cli.plan_check import checked_plan
    from ablation.cli.progress import make_reporter
    from ablation.cli.run import need_local_extra
    from ablation.errors import UsageError
    from ablation.plan.choose import choose_plan
    from ablation.plan.locate import missing_resources
    from ablation.study.chosen import choose_backend, on_backend
    from ablation.study.doctor import examine
    from ablation.study.machine import this_machine

    path = choose_plan(plan)
    loaded = checked_plan(path)
    chosen = on_backend(loaded.plan, choose_backend(loaded.plan.policy.backends, path, policy) or loaded.plan.policy.backend)
    machine = this_machine(chosen.policy, turns, server, server_folder, processes)
    lacking = missing_resources(loaded)
    if lacking:
        raise UsageError("\n".join(f"{path}: {line}" for line in lacking))
    need_local_extra(chosen.policy.backend)
    with make_reporter() as reporter:
        found = examine(chosen, path, reporter, machine)
    if as_json:
        typer.echo(json.dumps({"plan": str(path), **found}))
        return
    echo("\n".join(report(found)))


def report(found: dict[str, Any]) -> list[str]:
    """What was proven, line by line."""
    proof = found.get("preflight")
    if proof is None:
        return ["self-test passed: padding, packing, sampler and adapter do not move the trainer's logprobs beyond rounding"]
    if "reduction" in proof:
        return service_report(proof)
    lines = [
        f"sampler against trainer   {proof['mismatch']:.2g} nats in the mean, at most {proof['mismatch_largest']:.2g}; "
        f"bound {proof['bound']:g}",
        f"base without adapter      {proof['mismatch_base']:.2g} nats",
        f"adapter of all zeros      changes {proof['zero_adapter_changes']:.2g} nats",
    ]
    for target, effect in proof["targets"].items():
        lines.append(f"adapter on {target:<14} changes {effect['changes']:.2g} nats; {effect['mismatch']:.2g} from the trainer")
    evidence = proof["sampled_evidence"]
    lines += [
        f"tokens sampled            {proof['sampled_tokens']}; at most 10^{evidence:.1f} times likelier with other sampling "
        "values than with the plan's; 10^9.8 would be refused",
        f"same seeds again          {proof['same_seed_identical']:.0%} of rollouts identical",
        f"longest rollout           {proof['longest_rollout']} tokens; {proof['longest_at_once']} fit at one time",
    ]
    if "memory" in found:
        from ablation.study.memory import memory_table

        turns = found["turns"]
        taken = ", ".join(f"{name.replace('_', ' ')} {seconds:.1f} s" for name, seconds in turns["seconds"].items())
        lines += [f"turns                     {turns['mode']} ({turns['why']})", f"measured                  {taken}"]
        lines += memory_table(found["memory"])
    return lines


def service_report(proof: dict[str, Any]) -> list[str]:
    """What was proven of a training service, line by line."""
    here, reduction = proof["mismatch_here"], proof["reduction"]
    norm = proof["norm_metric"]
    tokens = ", ".join(f"{count:,} {kind}" for kind, count in proof["tokens"].items())
    return [
        f"start state               holds the plan's start adapter, rank {proof['rank']:g}, alpha {proof['alpha']:g}",
        f"tokenizer                 {proof['tokenizer']}",
        f"seeds                     {proof['seeds']}; {proof['same_seed_identical']:.0%} of rollouts the same when sampled again",
        f"sampler against trainer   {proof['mismatch']:.2g} nats in the mean; bound {proof['bound']:g}",
        f"against the model here    {'not compared' if here is None else f'{here:.2g} nats'}",
        f"losses                    {reduction['tokens']} over tokens, {reduction['rows']} over rows, made a sum; "
        f"scale {proof['scale']:.3f}",
        f"fresh Adam                first step {proof['first_step_off']:.2g} of the learning rate off; "
        f"{proof['resumed_off']:.2g} after a stored state",
        f"an adapter one step on    {proof['new_adapter_mismatch']:.2g} nats apart; "
        f"{proof['old_adapter_mismatch']:.2g} from the one before",
        f"norm of the gradient      {'not told' if norm is None else f'told as {norm}'}",
        f"tokens of this look       {tokens}",
    ]
