"""Prints, as stock reads it, a tensor of a checkpoint that the package wrote."""

import sys

import tensorflow as tf

prefix, name = sys.argv[1:]
reader = tf.train.load_checkpoint(prefix)
print(reader.get_tensor(name).tolist(), reader.get_variable_to_dtype_map()[name].name)
