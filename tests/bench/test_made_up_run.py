"""The run of the benchmarks, where an earlier one was killed while it was made."""

from tests.bench import made_up_run as made


def test_what_a_killed_one_left_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(made, "STAGES", ())
    first = made.made_up_run(tmp_path, 2)
    (first.parent / "done").unlink()  # as if it had been killed
    (first / "half").write_text("a part of a stage")
    second = made.made_up_run(tmp_path, 2)
    assert second == first and (second.parent / "done").is_file()
    assert not (second / "half").exists()
    (second / "mine").write_text("")
    assert (made.made_up_run(tmp_path, 2) / "mine").exists()  # a finished one is left as it is
