import base64
import hashlib
import json
import re
import shutil
import subprocess

import pytest

from ablation.blind.batch import ANSWERS, PAIRS, Batch, Item
from ablation.blind.form import read_form
from ablation.blind.ratings import Ratings
from ablation.report.blind_page import blind_page

EVIL = "</script><script>alert(1)</script>\x1b[31m <b>&"
PAIR = Batch(PAIRS, (Item(1, EVIL, {"X": {"thinking": EVIL, "answer": "xa"}, "Y": {"thinking": "yt", "answer": EVIL}}),))
ANSWER = Batch(ANSWERS, (Item(1, "user: Hello", {"answer": {"answer": EVIL}}, ("fine", "bad")),))


@pytest.mark.parametrize("batch", [PAIR, ANSWER])
def test_texts_are_escaped_and_nothing_is_loaded(batch):
    page = blind_page(batch)
    assert EVIL not in page and "&lt;/script&gt;" in page and "\x1b" not in page
    assert page.count("<script>") == 1 and "http" not in page.replace("http-equiv", "")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#39;", "'")
    for tag in ("script", "style"):
        own = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")


def test_a_page_is_a_function_of_its_batch():
    assert blind_page(PAIR) == blind_page(PAIR) != blind_page(ANSWER)


_DOM = """
const radio = (value, checked) => ({ value, checked });
const rows = JSON.parse(process.argv[1]);
const parts = rows.map((row) => ({
  dataset: { item: String(row.item) },
  querySelectorAll: () => Object.entries(row.said).map(([field, value]) => ({
    dataset: { field },
    querySelector: () => (value === null ? null : { value: JSON.stringify(value) }),
  })),
  querySelector: () => ({ value: row.note }),
}));
let saved = null;
let click = null;
const left = { textContent: "" };
globalThis.document = {
  forms: [{ blinded: { checked: process.argv[2] === "true" }, addEventListener() {} }],
  querySelectorAll: () => parts,
  getElementById: (name) => (name === "left" ? left : { addEventListener: (_, act) => { click = act; } }),
  createElement: () => ({ click() {} }),
};
globalThis.Blob = class { constructor(texts) { saved = texts.join(""); } };
URL.createObjectURL = () => "blob:";
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="runs the page's script in node")
def test_what_the_button_saves_is_what_import_reads(tmp_path):
    script = re.search(r"<script>(.*?)</script>", blind_page(PAIR), re.DOTALL)[1]
    said = {"same_answer": True, "same_method": False, "x_missing_checks": False, "y_missing_checks": True}

    def run(values, blinded):
        code = _DOM + script + "\nclick(); console.log(JSON.stringify([saved, left.textContent]));"
        rows = json.dumps([{"item": 1, "said": values, "note": "hm"}])
        done = subprocess.run(["node", "-e", code, rows, blinded], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    saved, left = run(said, "true")
    (tmp_path / "r.json").write_text(saved)
    (reply,) = read_form(tmp_path / "r.json", PAIR, Ratings("bo", (), "", b""))
    assert (reply.item, reply.values, reply.note, left) == (1, said, "hm", "Every item is rated.")
    saved, left = run(said | {"same_method": None}, "false")
    assert json.loads(saved)["blinded"] is None and json.loads(saved)["ratings"][0]["same_method"] is None
    assert left == "Still open: 1; the first box is not ticked."
