"""The first kernels for word vectors. Words that are drawn differ from run to run, so only their number is asked for."""

from values import *

import numpy as np

ROWS = np.float32([[0.1, 0.2, -0.3], [0.5, -0.1, 0.4], [-0.2, 0.3, 0.6]])


def train(c, label, samples=0, examples=(0, 2, 0), labels=(1, 1, 2), count=(3, 2, 1), accuracy="rounding", message=""):
    p = c.program(f"NegTrain/{label}", accuracy=accuracy, producer=18)
    for name, value in (("w_in", ROWS), ("w_out", ROWS[::-1].copy())):
        p.const(value, name=f"{name}0")
        p.node("Variable", name=name, dtype="float", shape=[3, 3])
        p.node("Assign", [name, f"{name}0"], name=f"{name}1", T="float")
    p.const(np.int32(examples), name="examples")
    p.const(np.int32(labels), name="labels")
    p.const(np.float32(0.5), name="lr")
    inputs = ["w_in", "w_out", "examples", "labels", "lr"]
    p.node("NegTrain", inputs, name="train", vocab_count=list(count), num_negative_samples=samples)
    p.step(target=["w_in1", "w_out1"])
    p.step(target=["train"], message=message)
    p.step(fetch=["w_in", "w_out"])


def cases(c):
    train(c, "positive")
    train(c, "no_examples", examples=(), labels=())
    train(c, "negative", samples=3, accuracy="random")
    train(c, "lengths", labels=(1, 1), message="examples.shape == labels.shape")
    train(c, "vocabulary", count=(1, 2), message="vocab_size mismatches: 3 vs. 2")
    p = c.program("Skipgram/no_file", producer=18)
    p.node("Skipgram", name="s", filename="/nowhere/text", batch_size=4)
    p.step(fetch=["s:5"], message="/nowhere/text")
