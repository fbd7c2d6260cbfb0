"""Lookup tables: programs on tables of every kind."""

from values import *

import numpy as np

# Keys that tables are asked for, and entries for every type of values.
KEYS = {"int32": [3, -1, 7], "int64": [3, -(2**40), 7], "string": ["a", "", "bcd"]}
VALUES = {
    "bool": [True, False, True],
    "float": [1.5, -2.0, 0.0],
    "double": [1.5, -2.0, 0.0],
    "int32": [4, -5, 6],
    "int64": [4, -5, 2**40],
    "string": ["x", "", "yz"],
}
ABSENT = {"int32": 9, "int64": 9, "string": "zz"}


def pairs(c, op):
    return [(key, value) for key in KEYS for value in VALUES if value in c.dtypes(op, "value_dtype", key_dtype=key)]


def nodes(p, key, value, table="table", key_shape=None):
    """Every op on a table; keys and values are fed."""
    p.placeholder(key, name="k")
    p.placeholder(value, name="v")
    p.placeholder(value, name="d")
    types = {"Tin": key, "Tout": value}
    p.node("LookupTableFindV2", [table, "k", "d"], name="find", **types)
    p.node("LookupTableInsertV2", [table, "k", "v"], name="insert", **types)
    p.node("LookupTableRemoveV2", [table, "k"], name="remove", Tin=key)
    p.node("LookupTableSizeV2", [table], name="size")
    p.node("LookupTableExportV2", [table], name="export", Tkeys=key, Tvalues=value)
    p.node("LookupTableImportV2", [table, "k", "v"], name="import", **types)
    p.node("InitializeTableV2", [table, "k", "v"], name="init", Tkey=key, Tval=value)


def entries(key, value, count=3):
    return convert(KEYS[key][:count], key), convert(VALUES[value][:count], value)


def static(c):
    for key, value in pairs(c, "HashTableV2"):
        p = c.program(f"HashTableV2/{key}-{value}")
        p.node("HashTableV2", name="table", key_dtype=key, value_dtype=value)
        nodes(p, key, value)
        keys, values = entries(key, value)
        asked = convert([KEYS[key][2], ABSENT[key], KEYS[key][0]], key)
        default = values[1]
        p.step(target=["init"], feed={"k": keys, "v": values})
        p.step(fetch=["find", "size"], feed={"k": asked, "d": default})
    p = c.program("HashTableV2/life")
    p.node("HashTableV2", name="table", key_dtype="string", value_dtype="int64")
    nodes(p, "string", "int64")
    keys, values = entries("string", "int64")
    default = np.int64(-1)
    p.step(fetch=["find"], feed={"k": keys, "d": default}, message=SENTENCE)
    p.step(fetch=["size"])
    p.step(fetch=["export:0"], message=SENTENCE)
    p.step(target=["init"], feed={"k": keys[:0], "v": values[:0]}, message=SENTENCE)
    p.step(target=["init"], feed={"k": keys, "v": values[:2]})
    p.step(target=["init"], feed={"k": keys.reshape(3, 1), "v": values.reshape(3, 1)})
    p.step(target=["init"], feed={"k": keys[[0, 0]], "v": values[:2]}, message=SENTENCE)
    p.step(fetch=["size"])
    p.step(target=["init"], feed={"k": keys[1:], "v": values[1:]})
    p.step(fetch=["size", "find"], feed={"k": keys, "d": default})
    p.step(target=["init"], feed={"k": keys, "v": values})
    p.step(target=["init"], feed={"k": keys[:2], "v": values[:2]}, message=SENTENCE)
    p.step(target=["init"], feed={"k": keys[::-1], "v": values})
    p.step(fetch=["find"], feed={"k": keys.reshape(1, 3), "d": default})
    p.step(fetch=["find"], feed={"k": keys[0], "d": default})
    p.step(fetch=["find"], feed={"k": keys[:0], "d": default})
    p.step(fetch=["find"], feed={"k": keys, "d": np.int64([1, 2, 3])})
    p.step(fetch=["find"], feed={"k": keys, "d": np.int64([1, 2])}, message=SENTENCE)
    p.step(target=["insert"], feed={"k": keys, "v": values}, message=SENTENCE)
    p.step(target=["remove"], feed={"k": keys}, message=SENTENCE)
    p.step(target=["import"], feed={"k": keys, "v": values})
    for value, repeated in {
        "float": [1.5, 2.25],
        "double": [1.5, 0.1],
        "string": ["x", "y"],
        "bool": [True, False],
    }.items():
        p = c.program(f"HashTableV2/two_values_{value}")
        p.node("HashTableV2", name="table", key_dtype="string", value_dtype=value)
        nodes(p, "string", value)
        p.step(target=["init"], feed={"k": keys[[0, 0]], "v": convert(repeated, value)}, message=SENTENCE)
    p = c.program("HashTableV2/one_value_twice")
    p.node("HashTableV2", name="table", key_dtype="string", value_dtype="int64")
    nodes(p, "string", "int64")
    p.step(target=["init"], feed={"k": keys[[0, 0, 1]], "v": values[[0, 0, 1]]})
    p.step(fetch=["size"])
    p.step(target=["init"], feed={"k": keys[[0, 0, 1]], "v": values[[0, 0, 1]]}, message=SENTENCE)


def mutable(c):
    for key, value in pairs(c, "MutableHashTableV2"):
        p = c.program(f"MutableHashTableV2/{key}-{value}")
        p.node("MutableHashTableV2", name="table", key_dtype=key, value_dtype=value)
        nodes(p, key, value)
        keys, values = entries(key, value)
        default = values[1]
        asked = convert([KEYS[key][2], ABSENT[key], KEYS[key][0]], key)
        p.step(target=["insert"], feed={"k": keys[:1], "v": values[:1]})
        p.step(fetch=["export:0", "export:1"])
        p.step(target=["insert"], feed={"k": keys, "v": values})
        p.step(fetch=["find", "size"], feed={"k": asked, "d": default})
        p.step(target=["remove"], feed={"k": keys[:2]})
        p.step(fetch=["find", "size"], feed={"k": asked, "d": default})
        p.step(fetch=["export:0", "export:1"])
    p = c.program("MutableHashTableV2/life")
    p.node("MutableHashTableV2", name="table", key_dtype="string", value_dtype="int64")
    nodes(p, "string", "int64")
    keys, values = entries("string", "int64")
    p.step(fetch=["size", "export:0", "export:1"])
    p.step(target=["insert"], feed={"k": keys[[0, 0]], "v": values[:2]})
    p.step(fetch=["find"], feed={"k": keys, "d": np.int64([7, 8, 9])})
    p.step(fetch=["find"], feed={"k": keys, "d": np.int64([7, 8])}, message=SENTENCE)
    p.step(target=["insert"], feed={"k": keys, "v": values[:2]}, message=SENTENCE)
    p.step(target=["insert"], feed={"k": keys[0], "v": values[0]})
    p.step(target=["remove"], feed={"k": convert(["nobody"], "string")})
    p.step(target=["import"], feed={"k": keys[2:], "v": values[2:]})
    p.step(fetch=["size", "export:0", "export:1"])
    p.step(target=["init"], feed={"k": keys, "v": values}, message="is not initializable")


def of_tensors(c):
    for key, value in pairs(c, "MutableHashTableOfTensorsV2"):
        p = c.program(f"MutableHashTableOfTensorsV2/{key}-{value}")
        p.node("MutableHashTableOfTensorsV2", name="table", key_dtype=key, value_dtype=value, value_shape=[2])
        nodes(p, key, value)
        keys, values = entries(key, value)
        rows = values[[0, 1, 1, 2, 2, 0]].reshape(3, 2)
        asked = convert([KEYS[key][2], ABSENT[key]], key)
        p.step(target=["insert"], feed={"k": keys, "v": rows})
        p.step(fetch=["find", "size"], feed={"k": asked, "d": rows[0]})
        p.step(target=["remove"], feed={"k": keys[:2]})
        p.step(fetch=["export:0", "export:1"])
        p.step(target=["insert"], feed={"k": keys[:1], "v": rows[2:]})
        p.step(fetch=["find", "size"], feed={"k": keys, "d": rows})
    for name, shape in {"scalar": [], "matrix": [2, 2], "unknown": None, "empty": [0]}.items():
        p = c.program(f"MutableHashTableOfTensorsV2/of_{name}")
        p.node("MutableHashTableOfTensorsV2", name="table", key_dtype="int64", value_dtype="float", value_shape=shape)
        p.node("LookupTableSizeV2", ["table"], name="size")
        p.step(fetch=["size"])


def dense(c):
    marks = {"int32": (0, -2), "int64": (0, -2), "string": ("-", "--")}
    for key, value in pairs(c, "MutableDenseHashTableV2"):
        p = c.program(f"MutableDenseHashTableV2/{key}-{value}")
        p.const(convert(marks[key][0], key), name="empty")
        p.const(convert(marks[key][1], key), name="deleted")
        p.node(
            "MutableDenseHashTableV2",
            ["empty", "deleted"],
            name="table",
            key_dtype=key,
            value_dtype=value,
            initial_num_buckets=4,
        )
        nodes(p, key, value)
        keys, values = entries(key, value)
        default = values[1]
        asked = convert([KEYS[key][2], ABSENT[key], KEYS[key][0]], key)
        p.step(target=["insert"], feed={"k": keys, "v": values})
        p.step(fetch=["find", "size", "export:0", "export:1"], feed={"k": asked, "d": default})
        p.step(target=["remove"], feed={"k": keys[:2]})
        p.step(fetch=["find", "size", "export:0", "export:1"], feed={"k": asked, "d": default})
        p.step(target=["insert"], feed={"k": asked, "v": values})
        p.step(fetch=["find", "size", "export:0", "export:1"], feed={"k": asked, "d": default})
        for mark in marks[key]:
            marked = convert([mark], key)
            p.step(target=["insert"], feed={"k": marked, "v": values[:1]}, message=SENTENCE)
            p.step(fetch=["find"], feed={"k": marked, "d": default}, message=SENTENCE)
            p.step(target=["remove"], feed={"k": marked}, message=SENTENCE)
    for key, empty_key, deleted in (("int64", [0, 0], [1, 1]), ("string", ["", ""], ["x", "x"])):
        p = c.program(f"MutableDenseHashTableV2/vectors-{key}")
        p.const(convert(empty_key, key), name="empty")
        p.const(convert(deleted, key), name="deleted")
        p.node(
            "MutableDenseHashTableV2",
            ["empty", "deleted"],
            name="table",
            key_dtype=key,
            value_dtype="int64",
            value_shape=[3],
            initial_num_buckets=4,
        )
        nodes(p, key, "int64")
        keys = convert([[1, 2], [3, 4], [2, 1], [-5, 6]], key)
        values = np.arange(12).reshape(4, 3)
        default = np.int64([-1, -2, -3])
        p.step(target=["insert"], feed={"k": keys, "v": values})
        p.step(fetch=["find"], feed={"k": keys[[1, 3]], "d": default})
        p.step(target=["remove"], feed={"k": keys[1:2]})
        p.step(fetch=["find"], feed={"k": keys, "d": default})
        p.step(fetch=["size", "export:0", "export:1"])
        p.step(fetch=["find"], feed={"k": keys[0], "d": default}, message=SENTENCE)
        p.step(fetch=["find"], feed={"k": keys[:, :1], "d": default}, message=SENTENCE)
    many = np.arange(1, 40)
    p = c.program("MutableDenseHashTableV2/grows")
    p.const(np.int64(0), name="empty")
    p.const(np.int64(-1), name="deleted")
    table = dict(key_dtype="int64", value_dtype="int64")
    p.node("MutableDenseHashTableV2", ["empty", "deleted"], name="table", initial_num_buckets=8, **table)
    nodes(p, "int64", "int64")
    p.step(target=["insert"], feed={"k": many * 8, "v": many})
    p.step(fetch=["size", "export:0", "export:1"])
    p.step(target=["remove"], feed={"k": many[::2] * 8})
    p.step(target=["insert"], feed={"k": many, "v": many})
    p.step(fetch=["size", "export:0", "export:1"])
    p = c.program("MutableDenseHashTable/imported")
    p.const(np.int64(0), name="empty")
    p.const(np.int64(-1), name="deleted")
    p.node("MutableDenseHashTableV2", ["empty", "deleted"], name="table", **table)
    nodes(p, "int64", "int64")
    buckets = np.int64([[0], [5], [-1], [0]])
    p.step(target=["import"], feed={"k": buckets, "v": buckets * 2})
    p.step(fetch=["size", "find"], feed={"k": np.int64([5, 6]), "d": np.int64(-7)})
    wrong = {
        "buckets": dict(initial_num_buckets=5),
        "load": dict(max_load_factor=1.5),
        "value_shape": dict(value_shape=[1, 2]),
        "equal_keys": dict(deleted=0),
        "key_shapes": dict(deleted=[1, 2]),
        "matrix_keys": dict(empty=[[1]], deleted=[[2]]),
    }
    for name, change in wrong.items():
        p = c.program(f"MutableDenseHashTableV2/wrong/{name}")
        p.const(np.int64(change.pop("empty", 0)), name="empty")
        p.const(np.int64(change.pop("deleted", 1)), name="deleted")
        p.node("MutableDenseHashTableV2", ["empty", "deleted"], name="table", **table, **change)
        p.node("LookupTableSizeV2", ["table"], name="size")
        p.step(fetch=["size"], message=SENTENCE if name != "matrix_keys" else "")


def first_generation(c):
    for op, extra in {
        "HashTable": {},
        "MutableHashTable": {},
        "MutableHashTableOfTensors": {"value_shape": [1]},
        "MutableDenseHashTable": {},
    }.items():
        p = c.program(f"{op}/by_reference")
        p.const(np.int64(0), name="empty")
        inputs = ["empty"] if op == "MutableDenseHashTable" else []
        p.node(op, inputs, name="table", key_dtype="int64", value_dtype="float", **extra)
        p.placeholder("int64", name="k")
        p.placeholder("float", name="v")
        p.placeholder("float", name="d")
        types = {"Tin": "int64", "Tout": "float"}
        p.node("LookupTableFind", ["table", "k", "d"], name="find", **types)
        p.node("LookupTableInsert", ["table", "k", "v"], name="insert", **types)
        p.node("LookupTableSize", ["table"], name="size")
        p.node("LookupTableExport", ["table"], name="export", Tkeys="int64", Tvalues="float")
        p.node("LookupTableImport", ["table", "k", "v"], name="import", **types)
        p.node("InitializeTable", ["table", "k", "v"], name="init", Tkey="int64", Tval="float")
        keys = np.int64([5])
        values = np.float32([[1.5]] if extra else [1.5])
        default = np.float32([-1] if extra else -1)
        p.step(target=["insert" if op != "HashTable" else "init"], feed={"k": keys, "v": values})
        p.step(fetch=["find", "size"], feed={"k": np.int64([5, 6]), "d": default})
        p.step(target=["import"], feed={"k": keys, "v": values})
        p.step(fetch=["export:0", "export:1"])


def anonymous(c):
    for op, extra, inputs in [
        ("AnonymousHashTable", {}, 0),
        ("AnonymousMutableHashTable", {}, 0),
        ("AnonymousMutableHashTableOfTensors", {"value_shape": [1]}, 0),
        ("AnonymousMutableDenseHashTable", {"initial_num_buckets": 4}, 2),
    ]:
        p = c.program(f"{op}/one_step")
        p.const(np.int64(0), name="empty")
        p.const(np.int64(-1), name="deleted")
        p.node(op, ["empty", "deleted"][:inputs], name="table", key_dtype="int64", value_dtype="float", **extra)
        p.const(np.int64([5, 6]), name="k")
        p.const(np.float32([[1], [2]] if "Tensors" in op else [1, 2]), name="v")
        p.const(np.int64([6, 7]), name="asked")
        p.const(np.float32([-1] if "Tensors" in op else -1), name="d")
        types = {"Tin": "int64", "Tout": "float"}
        if op == "AnonymousHashTable":
            p.node("InitializeTableV2", ["table", "k", "v"], name="fill", Tkey="int64", Tval="float")
        else:
            p.node("LookupTableInsertV2", ["table", "k", "v"], name="fill", **types)
        p.node("LookupTableFindV2", ["table", "asked", "d", "^fill"], name="find", **types)
        p.node("LookupTableSizeV2", ["table", "^fill"], name="size")
        for _ in range(2):
            p.step(fetch=["find", "size"])


def shared(c):
    for op in ("HashTableV2", "MutableHashTableV2"):
        for name, first, second in [
            ("same", {"shared_name": "s"}, {"shared_name": "s"}),
            ("containers", {"shared_name": "s"}, {"shared_name": "s", "container": "c"}),
            ("types", {"shared_name": "s"}, {"shared_name": "s", "value_dtype": "float"}),
            ("node_name", {"use_node_name_sharing": True}, {"shared_name": "table"}),
            ("private", {}, {}),
        ]:
            p = c.program(f"{op}/shared/{name}")
            types = {"key_dtype": "int64", "value_dtype": "int64"}
            p.node(op, name="table", **(types | first))
            p.node(op, name="other", **(types | second))
            p.placeholder("int64", name="k")
            fill = "InitializeTableV2" if op == "HashTableV2" else "LookupTableInsertV2"
            attrs = {"Tkey": "int64", "Tval": "int64"} if op == "HashTableV2" else {"Tin": "int64", "Tout": "int64"}
            p.node(fill, ["table", "k", "k"], name="fill", **attrs)
            p.node("LookupTableSizeV2", ["other"], name="size")
            p.step(target=["fill"], feed={"k": np.int64([1, 2])})
            p.step(fetch=["size"], message=SENTENCE)
    p = c.program("MutableHashTableV2/as_static")
    p.node("MutableHashTableV2", name="table", key_dtype="int64", value_dtype="int64", shared_name="s")
    p.node("HashTableV2", name="other", key_dtype="int64", value_dtype="int64", shared_name="s")
    p.node("LookupTableSizeV2", ["other"], name="size")
    p.step(target=["table"])
    p.step(fetch=["size"])


def types(c):
    """Ops that declare other types than their table has."""
    for op, table in [("HashTableV2", "static"), ("MutableHashTableV2", "mutable")]:
        p = c.program(f"{op}/other_types")
        p.node(op, name="table", key_dtype="string", value_dtype="int64")
        p.placeholder("int64", name="k")
        p.placeholder("int64", name="v")
        p.placeholder("resource", name="any")
        for other, inputs, attrs in [
            ("LookupTableFindV2", ["any", "k", "v"], {"Tin": "int64", "Tout": "int64"}),
            ("LookupTableInsertV2", ["any", "k", "v"], {"Tin": "int64", "Tout": "int64"}),
            ("LookupTableRemoveV2", ["any", "k"], {"Tin": "int64"}),
            ("LookupTableImportV2", ["any", "k", "v"], {"Tin": "int64", "Tout": "int64"}),
            ("InitializeTableV2", ["any", "k", "v"], {"Tkey": "int64", "Tval": "int64"}),
        ]:
            p.node("Identity", ["table"], name=f"handle_{other}", T="resource")
            p.node(other, ["table", *inputs[1:]], name=f"{table}_{other}", **attrs)
        feed = {"k": np.int64([1]), "v": np.int64([1])}
        for node in ("Insert", "Remove", "Import"):
            p.step(target=[f"{table}_LookupTable{node}V2"], feed=feed, message="Signature mismatch")
        if op == "HashTableV2":
            p.step(target=[f"{table}_InitializeTableV2"], feed=feed, message=SENTENCE)
            p.step(fetch=[f"{table}_LookupTableFindV2"], feed=feed, message=SENTENCE)
    for op, key, value in [
        ("HashTableV2", "int32", "int64"),
        ("HashTableV2", "float", "int64"),
        ("MutableHashTableV2", "string", "string"),
        ("MutableDenseHashTableV2", "int64", "string"),
    ]:
        p = c.program(f"{op}/no_kernel/{key}-{value}")
        inputs = []
        if op == "MutableDenseHashTableV2":
            inputs = [p.const(convert([1], key)[0], name="empty"), p.const(convert([2], key)[0], name="deleted")]
        p.node(op, inputs, name="table", key_dtype=key, value_dtype=value)
        p.node("LookupTableSizeV2", ["table"], name="size")
        p.step(fetch=["size"])


def cases(c):
    static(c)
    mutable(c)
    of_tensors(c)
    dense(c)
    first_generation(c)
    anonymous(c)
    shared(c)
    types(c)
