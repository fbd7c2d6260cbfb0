"""Writes or checks everything stock says: `testdata/ops.pbtxt`, `testdata/kernels.tsv`, `testdata/placement/*.pbtxt`,
`testdata/gradients/*` and `testdata/golden/*.pbtxt`.

    python oracle/goldens.py [--family F]... [--check] [--trace] [--jobs N]
"""

import argparse
import importlib.util
import pathlib
import re
import sys

import environment
import workers

ORACLE = pathlib.Path(__file__).resolve().parent
TESTDATA = ORACLE.parent / "testdata"
# Stock's vectorized kernels differ between CPUs in the last bits; goldens of such ops are current when they are this close.
TOLERANCE = 1e-4
# Half and bfloat16 values are written as bits; this many units in the last place are rounding.
HALF_ULPS = 2

_server = None


def family_names():
    return sorted(path.stem for path in (ORACLE / "cases").glob("*.py"))


def family_text(name, trace):
    """The text of one golden file, and how many cases it holds. Runs in a worker process with a server of its own."""
    global _server
    import harness
    import stock

    if _server is None:
        _server = stock.Stock()
    family = harness.Family(name)
    # By path, because a family may be called like a standard module (`random`, `select`).
    spec = importlib.util.spec_from_file_location(f"cases_{name}", ORACLE / "cases" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    module.cases(family)
    return family.text(_server, trace)


def declarations():
    """The files that have no cases."""
    import dump_ops
    import gradients

    return {**dump_ops.files(), "gradients/ops.tsv": gradients.registered()}


def placements():
    import placement

    return placement.files()


def gradient_family(name):
    import gradients

    return gradients.files([name])


def golden_family(name, trace):
    return {f"golden/{name}.pbtxt": family_text(name, trace)}


def without(text, cases):
    """A golden file without these cases."""
    head, *blocks = re.split(r"^(?=case \{)", text, flags=re.MULTILINE)
    return head + "".join(block for block in blocks if not any(f'\n  name: "{case}"\n' in block for case in cases))


def same(old, new):
    """The first difference that is not rounding or stock's wording, or None."""
    said = lambda line: not line.lstrip().startswith("#") or line.startswith("# placed: ")
    old_lines = [line for line in old.splitlines() if said(line)]
    new_lines = [line for line in new.splitlines() if said(line)]
    exact = case = ""
    for before, after in zip(old_lines, new_lines):
        if before.startswith("  name: "):
            exact, case = True, before.strip()
        if before.startswith("  accuracy: "):
            exact = False
        if before != after and (exact or not _close(before, after)):
            return f"{case}\n  - {before.strip()}\n  + {after.strip()}"
    if len(old_lines) != len(new_lines):
        return f"{len(old_lines)} lines before, {len(new_lines)} now"
    return None


def _close(before, after):
    number = re.compile(r"(?<![\w.\"])-?(?:\d[\d.]*(?:e[+-]?\d+)?|inf|nan)(?![\w\"])")
    if number.sub("#", before) != number.sub("#", after):
        return False
    half = "half_val" in before
    for x, y in zip(map(float, number.findall(before)), map(float, number.findall(after))):
        if x != y and not (x != x and y != y):
            limit = HALF_ULPS if half else TOLERANCE * max(abs(x), abs(y), 1e-3)
            if not abs(x - y) <= limit:
                return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", action="append", help="only this family (may be repeated)")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a file is not what stock says")
    parser.add_argument("--trace", action="store_true", help="print each case before stock runs it")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    unknown = set(args.family or []) - set(family_names())
    if unknown:
        sys.exit(f"no such family: {', '.join(sorted(unknown))}")

    jobs = [((family,), golden_family, family, args.trace) for family in args.family or family_names()]
    if not args.family:
        others = [(("declarations",), declarations), (("placement",), placements)]
        families = sorted(path.stem for path in (ORACLE / "gradient_cases").glob("*.py"))
        jobs = others + [(("gradients", family), gradient_family, family) for family in families] + jobs

    wrong, findings = [], []

    def found(name, finding):
        wrong.append(name)
        findings.append(finding)
        print(finding, flush=True)

    def settle(path, text, deaths):
        """Writes a file or compares it with what stock says; returns the difference."""
        old = path.read_text() if path.exists() else ""
        name = path.relative_to(TESTDATA.parent)
        difference = same(without(old, deaths), text) if args.check else None
        if not args.check and old != text and not deaths:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        print(f"{name}: {text.count(chr(10) + 'case {')} cases, {len(text) // 1024} KB", flush=True)
        return difference and f"{name} is not current: {difference}"

    def ask(jobs):
        """Runs jobs; returns the differences of each that has any."""
        different = {}
        for key, outcome in workers.run(jobs, args.jobs):
            name = "/".join(key)
            for case, ending in outcome.deaths.items():
                found(f"{name}/{case}", f"{name}/{case}: stock {ending}")
            if outcome.failure:
                found(name, f"{name}: {outcome.failure}")
            files = (outcome.value or {}).items()
            differences = filter(None, [settle(TESTDATA / path, text, outcome.deaths) for path, text in files])
            different[key] = list(differences)
        return {key: differences for key, differences in different.items() if differences}

    # On a busy machine stock does, rarely, abort a step that succeeds a moment later: a difference must show twice.
    once = ask(jobs)
    for differences in once.values():
        print(*(f"asking again: {difference}" for difference in differences), sep="\n", flush=True)
    twice = ask([job for job in jobs if job[0] in once]) if once else {}
    for key, differences in twice.items():
        for difference in differences:
            found("/".join(key), difference)
    orphans = (
        []
        if args.family
        else sorted(p.name for p in (TESTDATA / "golden").glob("*.pbtxt") if p.stem not in family_names())
    )
    if wrong or orphans:
        # Again at the end, because that is the part of a long log that people see.
        print(*findings, sep="\n")
        sys.exit(f"not current: {', '.join(wrong + orphans)}")


if __name__ == "__main__":
    main()
