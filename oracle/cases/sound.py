"""Sound files, spectrograms, and coefficients of speech."""

import struct

from values import SENTENCE, lit, unit

import numpy as np


def wav(samples, channels=1, rate=8000, head=b"", size=16, tail=b"", **fields):
    """A file, with fields that may be wrong."""
    data = np.array(samples, np.int16).tobytes()
    fields = {
        "format": 1,
        "per_second": rate * 2 * channels,
        "per_sample": 2 * channels,
        "bits": 16,
        "length": len(data),
    } | fields
    form = struct.pack(
        "<HHIIHH", fields["format"], channels, rate, fields["per_second"], fields["per_sample"], fields["bits"]
    )
    chunk = b"fmt " + struct.pack("<I", size) + form + bytes(size - 16)
    body = b"WAVE" + head + chunk + b"data" + struct.pack("<I", fields["length"]) + data + tail
    return b"RIFF" + struct.pack("<I", len(body)) + body


def cases(c):
    files(c)
    spectra(c)


def files(c):
    samples = [0, 1, -1, 32767, -32768, 1234, -4321, 5]
    good = wav(samples)
    for name, data in {
        "mono": good,
        "stereo": wav(samples, 2, 44100),
        "junk": wav(samples, head=b"JUNK" + struct.pack("<I", 4) + b"1234"),
        "extended": wav(samples, size=18),
        "list": wav(samples, tail=b"LIST" + struct.pack("<I", 2) + b"ab"),
        "none": wav([]),
        "riff": b"RIFX" + good[4:],
        "wave": good[:8] + b"AVI " + good[12:],
        "unknown": wav(samples, head=b"what" + struct.pack("<I", 0)),
        "format": wav(samples, format=3),
        "size": wav(samples, size=40),
        "bits": wav(samples, bits=8),
        "per-sample": wav(samples, per_sample=3),
        "per-second": wav(samples, per_second=3),
        "channels": wav(samples, 0),
        "cut": good[:-3],
        "head": good[:30],
        "no-data": good[:36],
        "long": wav(samples, length=1 << 20),
        "huge": wav(samples, length=0xFFFFFFF0),
        "twice": wav(samples, tail=b"data" + struct.pack("<I", 2) + b"ab"),
        "empty": b"",
    }.items():
        c.op("DecodeWav", [np.array(data, object)], name, message=SENTENCE)
    stereo = wav(samples, 2)
    for channels, count in ((1, -1), (3, -1), (-1, 2), (2, 7), (0, 0)):
        c.op(
            "DecodeWav",
            [np.array(stereo, object)],
            f"{channels}/{count}",
            desired_channels=channels,
            desired_samples=count,
        )
    c.op("DecodeWav", [np.array([good], object)], "rank", message=SENTENCE)
    loud = np.float32([[0, 1], [-1, 0.5], [2, -2], [1e-5, 3.05e-5], [0.99999, -0.3]])
    c.op("EncodeWav", [loud, np.int32(16000)], "stereo")
    c.op("EncodeWav", [loud[:, :1], np.int32(1)], "mono")
    c.op("EncodeWav", [loud[:0], np.int32(1)], "empty")
    c.op("EncodeWav", [loud, np.int32(0)], "rate", message=SENTENCE)
    c.op("EncodeWav", [loud[:, :0], np.int32(1)], "channels", message=SENTENCE)
    c.op("EncodeWav", [loud[0], np.int32(1)], "rank", message=SENTENCE)


def spectra(c):
    c.accuracy("rounding")
    time = np.arange(200) / 200
    tones = np.float32(np.stack([np.sin(40 * time) + 0.3 * np.sin(111 * time), np.cos(77 * time)], -1))
    for window, stride in ((2, 1), (16, 7), (25, 10), (64, 64), (300, 1)):
        for squared in (False, True):
            signal = tones if window > 2 else tones[:9]
            c.op(
                "AudioSpectrogram",
                [signal],
                f"{window}/{squared}",
                window_size=window,
                stride=stride,
                magnitude_squared=squared,
            )
    c.op("AudioSpectrogram", [tones], "window", window_size=1, stride=1, message=SENTENCE)
    c.op("AudioSpectrogram", [tones], "stride", window_size=4, stride=0, message=SENTENCE)
    c.op("AudioSpectrogram", [tones[:, 0]], "rank", window_size=4, stride=1, message=SENTENCE)
    spectrum = lit(np.abs(np.random.RandomState(0).randn(2, 3, 257)).astype(np.float32))
    c.op("Mfcc", [spectrum, np.int32(16000)], "speech")
    c.op("Mfcc", [spectrum, np.int32(8000)], "narrow", filterbank_channel_count=20, dct_coefficient_count=20)
    c.op("Mfcc", [spectrum, np.int32(16000)], "high", lower_frequency_limit=300.0, upper_frequency_limit=7600.0)
    c.op("Mfcc", [spectrum, np.int32(0)], "rate", message=SENTENCE)
    c.op("Mfcc", [spectrum, np.int32(16000)], "count", dct_coefficient_count=41, message=SENTENCE)
    c.op("Mfcc", [spectrum, np.int32(16000)], "limits", lower_frequency_limit=5000.0, message=SENTENCE)
    c.op("Mfcc", [unit(2, 3), np.int32(16000)], "rank", message=SENTENCE)
    c.op("Mfcc", [lit(np.ones([1, 1, 20], np.float32)), np.int32(1000)], "outside")
