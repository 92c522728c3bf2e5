"""On the path of a Python, it is one without torch and peft."""

import importlib.abc
import importlib.util
import sys

HIDDEN = ("torch", "peft")
_find_spec = importlib.util.find_spec


class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def find_spec(name, package=None):
    return None if name.split(".")[0] in HIDDEN else _find_spec(name, package)


sys.meta_path.insert(0, Hide())
importlib.util.find_spec = find_spec
