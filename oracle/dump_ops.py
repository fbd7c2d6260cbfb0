"""Writes what stock declares: `testdata/ops.pbtxt` (every OpDef), `testdata/kernels.tsv` (every CPU kernel) and
`testdata/op_families.tsv` (the module of stock's Python package that has an op).

Descriptions are left out. The first two are compared with our own declarations by tests; the compatibility table is made
of all three.
"""

import pathlib
import re

import environment  # noqa: F401

import tensorflow as tf
from google.protobuf import text_format

import stock

TESTDATA = pathlib.Path(__file__).resolve().parent.parent / "testdata"


def ops_text():
    """One OpList in text form, ops in name order."""
    parts = [f"# Ops registered in TensorFlow {stock.VERSION}, without descriptions. Written by oracle/dump_ops.py.\n"]
    for op in stock.op_defs().values():
        op.summary = op.description = ""
        for part in (*op.input_arg, *op.output_arg, *op.attr):
            part.description = ""
        op.deprecation.explanation = ""
        if not op.deprecation.version:
            op.ClearField("deprecation")
        body = text_format.MessageToString(op, indent=2)
        parts.append("op {\n" + body + "}\n")
    return "".join(parts)


def type_name(number):
    return tf.dtypes.DType(number).name


def kernels_text():
    """Tab-separated: op, then constraints as `T=float32,int32`, separated by spaces; one line per kernel."""
    lines = set()
    for kernel in stock.cpu_kernels():
        constraints = []
        for constraint in kernel.constraint:
            values = ",".join(sorted(type_name(t) for t in constraint.allowed_values.list.type))
            constraints.append(f"{constraint.name}={values}")
        priority = f"priority={kernel.priority}" if kernel.priority else ""
        label = f"label={kernel.label}" if kernel.label else ""
        lines.add("\t".join([kernel.op, " ".join(sorted(constraints)), label, priority]).rstrip())
    header = f"# CPU kernels registered in TensorFlow {stock.VERSION}: op, type constraints, label, priority. Written by oracle/dump_ops.py.\n"
    return header + "".join(re.sub(r"\s+$", "", line) + "\n" for line in sorted(lines))


def families_text():
    """Tab-separated: op, and the `math` of the module `gen_math_ops.py` that wraps it; ops without a wrapper are left out."""
    families = {}
    for module in pathlib.Path(tf.__file__).parent.rglob("gen_*_ops*.py"):
        family = re.fullmatch(r"gen_(.*)_ops(?:_v\d+)?", module.stem)
        for op in re.findall(r'apply_op_helper\(\s*"(\w+)"', module.read_text()):
            families.setdefault(op, set()).add(family.group(1))
    lines = [f"{op}\t{min(families[op])}\n" for op in stock.op_defs() if op in families]
    header = f"# Families of the ops of TensorFlow {stock.VERSION}, by the modules of its Python package. Written by oracle/dump_ops.py.\n"
    return header + "".join(lines)


def files():
    """The contents of the three files by path below testdata/."""
    return {"ops.pbtxt": ops_text(), "kernels.tsv": kernels_text(), "op_families.tsv": families_text()}
