"""Prints what stock finds in the directory of `ferroflow demo`: variables of the last checkpoint, and events.

python demo.py DIRECTORY
"""

import glob
import os
import sys

import environment

import tensorflow as tf

directory = sys.argv[1]
reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(directory))
print("global_step", reader.get_tensor("global_step"))
for name in ["hidden/kernel", "logits/kernel"]:
    print(name, list(reader.get_tensor(name).shape))


def tags(place):
    found = set()
    for path in glob.glob(os.path.join(place, "events.out.tfevents.*")):
        for event in tf.compat.v1.train.summary_iterator(path):
            found.update(value.tag for value in event.summary.value)
    return found


print("events of loss", any(tag.endswith("loss") for tag in tags(directory)))
print("events of accuracy", "accuracy" in tags(os.path.join(directory, "eval")))
