"""Values made of several tensors as one variant."""

from values import *

RAGGED, SPARSE = b"\n\x02\x08\x03", b"\n\x02\x08\x01"


def cases(c):
    p = c.program("components")
    inputs = [p.const(iota(3), "float"), p.const([0, 2, 3], "int64")]
    types = ["float", "int64"]
    encoded = p.node("CompositeTensorVariantFromComponents", inputs, metadata=RAGGED, Tcomponents=types)
    back = p.node("CompositeTensorVariantToComponents", [encoded], metadata=RAGGED, Tcomponents=types)
    p.step(fetch=[back, f"{back}:1"])
    for metadata, kinds in ((SPARSE, types), (RAGGED, ["float"]), (RAGGED, ["int64", "float"])):
        wrong = p.node("CompositeTensorVariantToComponents", [encoded], metadata=metadata, Tcomponents=kinds)
        p.step(fetch=[wrong])
    packed = p.node("Pack", [encoded, encoded], T="variant", N=2)
    first = p.node("CompositeTensorVariantToComponents", [packed], metadata=RAGGED, Tcomponents=types)
    p.step(fetch=[first])
    values = p.node(
        "RaggedTensorToVariant", inputs[:1], RAGGED_RANK=0, batched_input=False, Tvalues="float", Tsplits="int64"
    )
    other = p.node("CompositeTensorVariantToComponents", [values], metadata=RAGGED, Tcomponents=types)
    p.step(fetch=[other])
    p = c.program("nothing")
    encoded = p.node("CompositeTensorVariantFromComponents", [], metadata=b"", Tcomponents=[])
    p.step(target=[p.node("CompositeTensorVariantToComponents", [encoded], metadata=b"", Tcomponents=[])])
    p = c.program("bad_metadata")
    p.step(target=[p.node("CompositeTensorVariantFromComponents", [], metadata=b"\xff", Tcomponents=[])])
