"""A study of one arm through the command line, with a server that loses the adapter in the middle of a stage, and then to the end."""

from __future__ import annotations

import json
import threading

import pytest

from tests.policy.vllm.middle import GENERATE, Middle, whole
from tests.study.mini import ablation, mini_tree, write_plan

pytestmark = pytest.mark.slow
KEY = "sk-of-a-server-0123"


@pytest.fixture
def middle(server_engine):
    middle = Middle(server_engine)
    yield middle
    middle.close()


def tree() -> dict:
    found = mini_tree()
    found["problems"]["cells"] = {effort: ids[:2] for effort, ids in found["problems"]["cells"].items()}
    found["sampling"] |= {"max_tokens": 48}
    found["training"] |= {"updates": 1, "rollouts_per_cell": 4}
    found["policy"] = {"backend": "vllm", "threads": 1, "vllm": {"engine": "server", "sequences": 4}}
    return found


def planned(body: dict) -> bool:
    """Whether a rollout is the plan's own, and none of the preflight's."""
    values = body["sampling_params"]
    return bool(values["stop_token_ids"]) and values["max_tokens"] == 48


def rollout(body: dict) -> tuple:
    """What makes it another one: seed, prompt and adapter. Arms of a family share seeds."""
    return body["sampling_params"]["seed"], tuple(body["token_ids"]), body["model"].split("-ablation-")[0]


def test_a_run_goes_on_where_the_server_failed_and_samples_nothing_twice(middle, tmp_path):
    write_plan(tmp_path, tree())
    assert ablation(tmp_path, "plan", "lock", "plans/mini.yaml").returncode == 0
    more = {"ABLATION_VLLM_SERVER_KEY": KEY, "ABLATION_VLLM_SERVER": middle.address}
    sampled: list[tuple] = []
    lock = threading.Lock()

    def gone(path, body):
        """A server that loses the adapter after seven of the plan's own rollouts."""
        if path == GENERATE and planned(body):
            with lock:
                if len(sampled) == 7:
                    return whole({"error": {"message": f"no such model {KEY}", "code": 404}}, 404)
                sampled.append(rollout(body))

    middle.ask = gone
    stopped = ablation(tmp_path, "run", "--arm", "XK", more=more)
    assert stopped.returncode == 6, stopped.stderr
    assert "the adapter is gone from the server" in stopped.stderr
    assert "the same command goes on from here" in stopped.stderr
    assert "Traceback" not in stopped.stderr

    middle.forget()
    ended = ablation(tmp_path, "run", "--arm", "XK", more=more)
    assert ended.returncode == 0, ended.stderr
    later = [rollout(body) for body in middle.generated if planned(body)]
    assert len(set(later)) == len(later)
    again = set(later) & set(sampled)
    assert len(again) <= 3, "four at one time: those that were finished when it failed are on disk"
    assert {headers.get("Authorization") for headers in middle.headers} == {f"Bearer {KEY}"}

    audit = ablation(tmp_path, "audit")
    assert "checks agree; 3 things that the plan asks for: missing" in audit.stdout, audit.stdout + audit.stderr  # one arm ran
    run = tmp_path / "runs" / "mini"
    events = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    loaded = [event for event in events if event["event"] == "model_loaded"]
    assert len(loaded) == 2
    assert loaded[0]["machine"]["server"] == middle.address
    assert loaded[0]["server"]["vllm"] == "0.32.0"
    assert loaded[0]["server"]["seeds"] == "honoured"
    for file in [*run.rglob("*"), tmp_path / "plans" / "mini.lock"]:
        assert not file.is_file() or KEY.encode() not in file.read_bytes()
    for done in (stopped, ended, audit):
        assert KEY not in done.stdout + done.stderr
