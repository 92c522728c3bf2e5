from __future__ import annotations

from pathlib import Path

import pytest

from ablation.errors import UsageError
from ablation.plan.engines import Policy
from ablation.study.machine import Machine, this_machine

LOCAL = Policy()
OFFLINE = Policy.model_validate({"backend": "vllm"})
SERVER = Policy.model_validate({"backend": "vllm", "vllm": {"engine": "server"}})


def test_an_option_goes_before_the_environment_and_that_before_the_default():
    assert this_machine(OFFLINE, environment={}) == Machine("auto")
    assert this_machine(OFFLINE, environment={"ABLATION_TURNS": "restart"}) == Machine("restart")
    assert this_machine(OFFLINE, "together", environment={"ABLATION_TURNS": "restart"}) == Machine("together")
    found = this_machine(SERVER, server="http://127.0.0.1:8000", environment={"ABLATION_VLLM_SERVER": "http://other"})
    assert found.server == "http://127.0.0.1:8000"


def test_what_stands_in_the_environment_for_other_plans_is_left_alone():
    environment = {"ABLATION_VLLM_SERVER": "not an address", "ABLATION_TURNS": "together"}
    assert this_machine(LOCAL, environment=environment) == Machine()


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        (OFFLINE, {"turns": "fast"}, "--turns: found `fast`; it is one of auto, together, restart, sleep"),
        (LOCAL, {"turns": "sleep"}, "--turns: the plan's `policy.backend` is `local`"),
        (SERVER, {"turns": "sleep", "server": "http://a"}, "--turns: the plan samples from a server"),
        (LOCAL, {"server": "http://a"}, "--server: the plan samples from no server"),
        (OFFLINE, {"server_folder": Path("/")}, "--server-folder: the plan samples from no server"),
        (SERVER, {}, "the plan samples from a vLLM server: say where it is"),
        (SERVER, {"server": "127.0.0.1:8000"}, "--server: found `127.0.0.1:8000`; an address such as"),
        (SERVER, {"server": "http://:0"}, "an address such as"),
        (SERVER, {"server": "http://a:99999"}, "an address such as"),
        (SERVER, {"server": f"http://{'h' * 64}:80"}, "an address such as"),  # a part of a name has at most 63 characters
        (SERVER, {"server": "http://..:80"}, "an address such as"),
        (SERVER, {"server": "http://a:80/\x1b[31m"}, "an address such as"),
        (SERVER, {"server": "http://a b"}, "an address such as"),
        (SERVER, {"server": "http://a:80/?key=secret"}, "an address such as"),
        (SERVER, {"server": "http://me:secret@a"}, "--server: the address has a name or a password in it"),
        (
            SERVER,
            {"server": "http://a", "server_folder": Path("/nowhere/at/all")},
            "--server-folder: /nowhere/at/all is no folder",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(policy, options, message):
    with pytest.raises(UsageError) as raised:
        this_machine(policy, **options, environment={})
    assert message in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_wrong_variable_is_named():
    with pytest.raises(UsageError, match="ABLATION_TURNS: found `x`"):
        this_machine(OFFLINE, environment={"ABLATION_TURNS": "x"})


def test_the_record_has_no_password(tmp_path):
    assert Machine("auto", "http://me:secret@host").record()["server"] == "http://...@host"
    assert Machine(server_folder=tmp_path).record() == {
        "turns": "auto",
        "server": None,
        "server_folder": str(tmp_path),
        "processes": 1,
    }


def test_processes_are_those_of_the_option_then_of_the_environment():
    assert this_machine(LOCAL, processes=3, environment={"ABLATION_PROCESSES": "2"}) == Machine(processes=3)
    assert this_machine(OFFLINE, environment={"ABLATION_PROCESSES": "2"}) == Machine(processes=2)
    assert this_machine(LOCAL, environment={"ABLATION_PROCESSES": ""}) == Machine()


@pytest.mark.parametrize(
    ("option", "variable"),
    [(0, None), (-1, None), (None, "0"), (None, "two"), (None, "1.5"), (None, "²"), (10**9, None), (None, "4097")],
)
def test_what_is_no_number_of_processes_is_refused(option, variable):
    environment = {} if variable is None else {"ABLATION_PROCESSES": variable}
    with pytest.raises(UsageError, match=rf"processes|PROCESSES: found `{option if variable is None else variable}`"):
        this_machine(LOCAL, processes=option, environment=environment)


def test_a_number_of_processes_with_thousands_of_digits_is_refused():
    with pytest.raises(UsageError, match=f"ABLATION_PROCESSES: found `{'1' * 40}`; .* from 1 to 4096"):
        this_machine(LOCAL, environment={"ABLATION_PROCESSES": "1" * 5000})
