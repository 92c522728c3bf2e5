import hashlib

from ablation.problems.digest import fingerprint, masked, normalized
from ablation.problems.problem import Problem


def problem(prompt, name="p"):
    return Problem(name, "s", prompt, "exact", "g")


def test_spacing_case_and_compatibility_forms_make_no_other_problem():
    one, other = problem("What is  1 + 2?\n"), problem("what is １ + 2?", "q")
    assert fingerprint(one) == fingerprint(other)
    assert fingerprint(one).text == hashlib.sha256(b"what is 1 + 2?").hexdigest()


def test_numbers_are_masked_for_the_near_digest_only():
    one, other = fingerprint(problem("Add 12 and 3.5")), fingerprint(problem("Add 1,000 and 7"))
    assert one.text != other.text and one.near == other.near
    assert masked("Add 1,000 and 7") == "add 0 and 0"
    assert fingerprint(problem("Add 12 or 3.5")).near != one.near


def test_sharp_s_and_ligatures_fold():
    assert normalized("Straße ﬁle") == "strasse file"
