"""Pixels encoded as files: JPEG byte for byte, PNG by what it decodes to."""

from values import SENTENCE, arr

import numpy as np


def picture(height, width, channels=3):
    y, x, channel = np.mgrid[0:height, 0:width, 0:channels]
    return ((x * 23 + y * 11 + channel * 71) % 256).astype(np.uint8)


def cases(c):
    for size in ((1, 1), (8, 8), (7, 9), (17, 33)):
        for channels in (1, 3):
            image = picture(*size, channels)
            name = f"{size[0]}/{channels}"
            c.op("EncodeJpeg", [image], name)
            c.op("EncodeJpeg", [image], f"{name}/optimized", optimize_size=True, quality=40)
            c.op("EncodeJpeg", [image], f"{name}/progressive", progressive=True, quality=90)
            c.op("EncodeJpeg", [image], f"{name}/whole", chroma_downsampling=False, quality=75)
            c.op("EncodeJpegVariableQuality", [image, np.int32(60)], name)
    # Much that is even, so that runs of blocks end together, and noise.
    noise = np.random.RandomState(3).randint(0, 256, (40, 56, 3)).astype(np.uint8)
    noise[8:32] = 77
    for name, attrs in {"": {}, "/whole": {"chroma_downsampling": False}, "/rough": {"quality": 20}}.items():
        c.op("EncodeJpeg", [noise], f"progressive{name}", progressive=True, **attrs)
        c.op("EncodeJpeg", [noise[..., :1]], f"progressive/gray{name}", progressive=True, **attrs)
    image = picture(4, 5)
    c.op("EncodeJpeg", [image], "marked", xmp_metadata="some text", density_unit="cm", x_density=7, y_density=1000)
    for quality in (0, 1, 49, 100):
        c.op("EncodeJpeg", [image], f"quality/{quality}", quality=quality, format="rgb")
    c.op("EncodeJpeg", [image], "refused/quality", quality=101, message=SENTENCE)
    c.op("EncodeJpeg", [image], "refused/format", format="grayscale", message=SENTENCE)
    c.op("EncodeJpeg", [picture(2, 2, 2)], "refused/channels", message=SENTENCE)
    c.op("EncodeJpeg", [image[0]], "refused/rank", message=SENTENCE)
    c.op("EncodeJpeg", [image[:0]], "refused/empty")
    c.op("EncodeJpegVariableQuality", [image, np.int32(-1)], "refused/quality", message=SENTENCE)
    c.op("EncodeJpegVariableQuality", [image, np.int32([3])], "refused/rank", message=SENTENCE)
    for dtype in ("uint8", "uint16"):
        for channels in (1, 2, 3, 4):
            for level in (-1, 0, 1, 9):
                p = c.program(f"EncodePng/{dtype}/{channels}/{level}")
                image = p.const(arr(3, 4, channels)(dtype))
                file = p.node("EncodePng", [image], T=dtype, compression=level)
                back = p.node("DecodePng", [file], dtype=dtype, channels=channels if channels != 2 else 0)
                p.step(fetch=[back])
    p = c.program("EncodePng/batch")
    files = p.node("EncodePng", [p.const(arr(2, 3, 4, 4, 3)("uint8"))], T="uint8")
    shape = p.node("Shape", [files], T="string", out_type="int32")
    first = p.node(
        "Unpack", [p.node("Reshape", [files, p.const([6])], T="string", Tshape="int32")], T="string", num=6, axis=0
    )
    p.step(fetch=[shape, p.node("DecodePng", [f"{first}:5"])])
    c.op("EncodePng", [arr(3, 4, 5)], "refused/channels", message=SENTENCE)
    c.op("EncodePng", [arr(3, 4)], "refused/rank", message=SENTENCE)
    c.op("EncodePng", [arr(3, 4, 1)], "refused/level", types=["uint8"], compression=10, message=SENTENCE)
