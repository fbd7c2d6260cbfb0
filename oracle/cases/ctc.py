"""Connectionist temporal classification: the loss with its gradient, and both decoders."""

import numpy as np

rng = np.random.RandomState(7)
# Five frames, two sequences, four classes of which the last is the blank.
LOGITS = rng.uniform(-2, 2, (5, 2, 4)).round(2)
INDICES = np.int64([[0, 0], [0, 1], [1, 0], [1, 1], [1, 2]])
VALUES = np.int32([0, 2, 1, 1, 0])
LENGTHS = np.int32([4, 5])


def loss(c, label, logits=LOGITS, indices=INDICES, values=VALUES, lengths=LENGTHS, types=("float",), **attrs):
    c.op("CTCLoss", [logits, indices, values, lengths], label, types=types, **attrs)


def losses(c):
    loss(c, "", types=("float", "double"))
    loss(c, "collapse", preprocess_collapse_repeated=True)
    loss(c, "keep_repeated", ctc_merge_repeated=False)
    loss(c, "collapse_and_keep", preprocess_collapse_repeated=True, ctc_merge_repeated=False)
    loss(c, "no_path", lengths=np.int32([2, 3]))
    loss(c, "ignored", lengths=np.int32([1, 0]), ignore_longer_outputs_than_inputs=True)
    loss(c, "blanks_at_the_end", values=np.int32([0, 3, 1, 3, 3]))
    # Without any label but blanks, stock writes outside of its memory.
    loss(c, "impossible", logits=np.where(np.arange(4) == 0, -np.inf, LOGITS))
    long = rng.uniform(-1, 1, (30, 1, 6)).round(2)
    loss(c, "long", long, np.int64([[0, i] for i in range(8)]), np.int32([0, 1, 1, 4, 2, 2, 2, 3]), np.int32([30]))
    loss(c, "too_short", lengths=np.int32([1, 5]), message="Not enough time for target transition sequence")
    loss(c, "too_long", lengths=np.int32([6, 5]), message="sequence_length(0) <= 5")
    loss(c, "negative_length", lengths=np.int32([-1, 5]), message="seq_len(0) < 0")
    loss(c, "lengths", lengths=np.int32([4]))
    loss(c, "no_labels", indices=INDICES[:2], values=VALUES[:2], message="Labels length is zero in batch 1")
    loss(c, "after_blank", values=np.int32([3, 0, 1, 1, 0]), message="Saw a non-null label")
    loss(c, "negative_label", values=np.int32([-1, 0, 1, 1, 0]), message="All labels must be nonnegative integers")
    loss(c, "order", indices=INDICES[::-1].copy(), message="is out of order")
    loss(c, "repeated_index", indices=INDICES[[0, 0, 2, 3, 4]], message="is repeated")
    loss(c, "outside", indices=np.int64([[0, 0], [0, 1], [1, 0], [1, 1], [2, 2]]), message="is out of bounds")
    loss(c, "rows", values=VALUES[:3])
    loss(c, "no_frames", logits=LOGITS[:0], lengths=np.int32([0, 0]), message="cannot be 0")


def greedy(c, label, logits=LOGITS, lengths=LENGTHS, types=("float",), **attrs):
    c.op("CTCGreedyDecoder", [logits, lengths], label, types=types, **attrs)


def beam(c, label, logits=LOGITS, lengths=LENGTHS, types=("float",), **attrs):
    attrs = {"beam_width": 10, "top_paths": 2} | attrs
    c.op("CTCBeamSearchDecoder", [logits, lengths], label, types=types, **attrs)


def decoders(c):
    greedy(c, "", types=("float", "double"))
    peaks = np.eye(4)[[[0, 3], [0, 1], [3, 1], [0, 3], [2, 3]]] * 2.5
    for logits, label in ((LOGITS, "random"), (peaks, "peaks")):
        greedy(c, f"{label}_merged", logits, merge_repeated=True)
        greedy(c, f"{label}_blank", logits, blank_index=1)
        greedy(c, f"{label}_last_blank", logits, blank_index=-4)
    greedy(c, "no_labels", np.zeros((2, 2, 3)) + [0, 0, 1], np.int32([2, 0]))
    greedy(c, "no_such_blank", blank_index=4, message="blank_index expected to be between -4 and 3 but was 4")
    beam(c, "", types=("float", "double"))
    for width in (1, 2, 3, 50):
        beam(c, f"width_{width}", beam_width=width, top_paths=1)
        beam(c, f"width_{width}_repeated", beam_width=width, top_paths=1, merge_repeated=False)
    beam(c, "peaks", peaks + rng.uniform(0, 0.1, peaks.shape).round(3), top_paths=3)
    long = rng.uniform(-2, 2, (20, 1, 5)).round(2)
    beam(c, "long", long, np.int32([20]), top_paths=4, merge_repeated=False)
    beam(c, "impossible", np.where(np.arange(4) == 0, -np.inf, LOGITS))
    beam(c, "empty_sequence", lengths=np.int32([0, 2]), top_paths=1)
    beam(c, "more_paths_than_width", beam_width=1, message="requested more paths than the beam width.")
    beam(c, "few_leaves", lengths=np.int32([0, 2]), message="Less leaves in the beam search than requested.")
    for decoder in (greedy, beam):
        decoder(c, "too_long", lengths=np.int32([6, 5]), message="sequence_length(0) <= 5")
        decoder(c, "lengths", lengths=np.int32([4]))
        decoder(c, "no_frames", logits=LOGITS[:0], lengths=np.int32([0, 0]), message="inputs must not be empty")


def cases(c):
    c.accuracy("rounding")
    losses(c)
    decoders(c)
