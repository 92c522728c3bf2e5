import pytest

from ablation.blind.batch import Batch, Item
from ablation.blind.build import build, read_sides
from ablation.blind.key import Key
from ablation.blind.leaks import leaks, names_told
from ablation.errors import GateError
from tests.blind.made import SUBJECT, safety_rows, start, write_evaluation
from tests.cli.test_blind import call


def found(folder, plan, batch, sides, key, shown=None):
    shown = {"pairs.json": batch.data} if shown is None else shown
    return {one.name: one for one in leaks(folder, plan, batch, sides, key, shown)}


def with_text(batch, number, side, text):
    """The batch with `text` added to one side of one item."""
    items = list(batch.items)
    one = items[number - 1]
    texts = {name: dict(values) for name, values in one.texts.items()}
    texts[side]["answer"] += text
    items[number - 1] = Item(one.number, one.prompt, texts, one.labels)
    return Batch(batch.kind, tuple(items))


@pytest.fixture
def made(tmp_path):
    _, locked, folder = start(tmp_path)
    sides = read_sides(folder)
    built = build(folder, locked.plan, bytes(32), sides)
    return folder, locked.plan, built.batch, sides, built.key


def test_a_fresh_batch_tells_nothing(made):
    states = {name: one.state for name, one in found(*made).items()}
    assert states == {"fields": "ok", "ids": "ok", "names": "ok", "order": "ok", "lengths": "note"}
    assert found(*made)["lengths"].text == (
        "one and the same model has the longer text in 4 of 4 pairs; correlation of model and length: 1.00 (without its sign)"
    )


@pytest.mark.parametrize("what", ["seed", "digest", "subject", "adapter"])
def test_seeds_digests_and_checkpoints_in_anything_a_rater_gets_are_leaks(made, what):
    folder, plan, batch, sides, key = made
    text = {
        "seed": str(sides.reference.seed[7]),
        "digest": sides.subject.info.plan_digest[:12],
        "subject": "N@2",
        "adapter": sides.subject.info.adapter_sha256[:12],
    }[what]
    one = found(folder, plan, batch, sides, key, {"pairs.html": f"<p>({text})".encode()})["ids"]
    assert (one.state, one.text) == ("leak", f"{text} in pairs.html")
    longer = found(folder, plan, batch, sides, key, {"pairs.html": f"<p>x{text}x".encode()})["ids"]
    assert longer.state == ("leak" if what in ("digest", "adapter") else "ok")  # a word that has the id in it is another word


def test_a_name_in_one_models_text_alone_is_told(made):
    folder, plan, batch, sides, key = made
    one = with_text(batch, 2, "X", " The REPLICATION says so.")
    assert names_told(folder, plan, one, sides) == [{"item": 2, "side": "X", "name": "replication"}]
    assert found(folder, plan, one, sides, key)["names"].state == "note"
    both = with_text(one, 2, "Y", " The replication, too.")
    assert names_told(folder, plan, both, sides) == []
    assert names_told(folder, plan, with_text(batch, 2, "X", " N, X and replications"), sides) == []  # short, or another word
    problem = with_text(batch, 2, "Y", " (sum-4)")
    assert names_told(folder, plan, problem, sides) == [{"item": 2, "side": "Y", "name": "sum-4"}]
    items = [Item(item.number, item.prompt + " (sum-4)", item.texts) for item in problem.items]
    assert names_told(folder, plan, Batch(batch.kind, tuple(items)), sides) == []  # the problem says it


def test_an_order_that_is_not_balanced_is_a_leak(made):
    folder, plan, batch, sides, key = made
    rows = [row | {"X": "subject", "Y": "reference"} for row in key.items]
    assert found(folder, plan, batch, sides, Key(key.secret, key.batch_sha256, rows))["order"].state == "leak"
    assert found(folder, plan, batch, sides, None)["order"].state == "not checked"


def test_answers_of_one_model_first_are_a_leak(tmp_path):
    run, locked, _ = start(tmp_path)
    folder = write_evaluation(run, locked, "safety", safety_rows())
    sides = read_sides(folder)
    built = build(folder, locked.plan, bytes(32), sides)
    assert found(folder, locked.plan, built.batch, sides, built.key)["order"].state == "ok"
    item = built.batch.items[0]
    batch = Batch("answers", tuple(Item(n, item.prompt, item.texts, item.labels) for n in range(1, 41)))
    rows = [{"number": n, "model": "subject" if n <= 20 else "reference"} for n in range(1, 41)]
    one = found(folder, locked.plan, batch, sides, Key(bytes(32), "", rows))["order"]
    assert one.state == "leak" and "one model comes first" in one.text


def test_a_leak_at_making_time_writes_nothing(tmp_path, monkeypatch):
    run, locked, folder = start(tmp_path, words=" See N@2.")
    monkeypatch.chdir(tmp_path)
    before = run.journal.read_bytes()
    with pytest.raises(GateError, match=r"the batch would tell whose answers are whose: ids: N@2 in pairs"):
        call("pairs", "--subject", SUBJECT)
    assert not folder.root.exists() and not (locked.path.parent / "small.keys").exists() and run.journal.read_bytes() == before


def test_a_leak_that_was_sealed_is_found_by_check(tmp_path, monkeypatch):
    from ablation.blind import leaks as module

    start(tmp_path, words=" See N@2.")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "LEAK", "note")
    call("pairs", "--subject", SUBJECT)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert "ids     leak: N@2 in pairs.html, N@2 in pairs.json" in call("check", "--subject", SUBJECT, code=4).stdout
