"""One mutation of each program that changes what it returns.

Reads [{"solution", "entry_point", "check"}, ...] as JSON from standard input and writes a list of mutated solutions. A mutation is one small
change somewhere in the function: an operator, a comparison, a constant, a condition, a returned value. They are tried in an order
drawn from the seed; the first counts that makes the function return something else for an argument that its check uses (numbers:
something else by more than a hundredth; an error or no end within a second is something else, too).
"""

import ast
import contextlib
import copy
import io
import json
import random
import resource
import signal
import sys

SEED = 20_240_707
SWAPS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult,
    ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn,
    ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


class Stuck(BaseException):
    pass


def raise_stuck(*_):
    raise Stuck


def changes(function: ast.FunctionDef) -> list:
    """Functions that each change one node of a copy of the tree, given the node at the same place."""
    found = []
    for place, node in enumerate(ast.walk(function)):
        if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in SWAPS:
            found.append((place, lambda node: setattr(node, "op", SWAPS[type(node.op)]())))
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            found.append((place, lambda node: node.ops.__setitem__(0, SWAPS[type(node.ops[0])]())))
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            found.append((place, lambda node: setattr(node, "value", node.value + 1)))
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            found.append((place, lambda node: setattr(node, "value", not node.value)))
        elif isinstance(node, ast.If | ast.While | ast.IfExp):
            found.append((place, lambda node: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test))))
        elif isinstance(node, ast.Return) and node.value is not None:
            found.append((place, lambda node: setattr(node, "value", ast.Tuple([node.value], ast.Load()))))
            found.append((place, lambda node: setattr(node, "value", ast.Constant(None))))
    return found


def results(source: str, entry_point: str, calls: list) -> list:
    names: dict = {"__name__": "solution"}
    out = []
    try:
        signal.setitimer(signal.ITIMER_REAL, 1)
        exec(source, names)
        for args, kwargs in calls:
            signal.setitimer(signal.ITIMER_REAL, 1)
            out.append(names[entry_point](*copy.deepcopy(args), **copy.deepcopy(kwargs)))
    except (Exception, Stuck) as error:
        out.append(type(error))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return out


def calls_of(problem: dict) -> list:
    calls = []
    names: dict = {"__name__": "check"}
    exec(problem["solution"], names)
    function = names[problem["entry_point"]]

    def recording(*args, **kwargs):
        calls.append((copy.deepcopy(args), copy.deepcopy(kwargs)))
        return function(*args, **kwargs)

    check: dict = {"__name__": "check"}
    exec(problem["check"], check)
    check[problem["entry_point"]] = function
    check["check"](recording)
    return calls


def differ(a, b) -> bool:
    if isinstance(a, int | float) and isinstance(b, int | float) and type(a) is not bool and type(b) is not bool:
        return abs(a - b) > 0.01
    if type(a) is type(b) and isinstance(a, list | tuple) and len(a) == len(b):
        return any(differ(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is not type(b) or a != b


def mutant(problem: dict, seed: str) -> str:
    tree = ast.parse(problem["solution"])
    at = next(i for i, node in enumerate(tree.body) if isinstance(node, ast.FunctionDef) and node.name == problem["entry_point"])
    found = changes(tree.body[at])
    random.Random(seed).shuffle(found)
    random.seed(seed)  # some checks draw their arguments
    calls = calls_of(problem)
    right = results(problem["solution"], problem["entry_point"], calls)
    for place, change in found:
        mutated = copy.deepcopy(tree)
        change(list(ast.walk(mutated.body[at]))[place])
        source = ast.unparse(ast.fix_missing_locations(mutated))
        got = results(source, problem["entry_point"], calls)
        if any(differ(a, b) for a, b in zip(right, got, strict=False)):
            return source
    raise AssertionError(f"no mutation changes {problem['entry_point']}")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    signal.signal(signal.SIGALRM, raise_stuck)
    with contextlib.redirect_stdout(io.StringIO()):
        found = [mutant(problem, f"{SEED}/{n}") for n, problem in enumerate(json.load(sys.stdin))]
    json.dump(found, sys.stdout)
