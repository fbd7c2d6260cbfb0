"""Image files decoded. Files that stock cannot write are here as other programs wrote them."""

import base64
import struct
import zlib

from values import SENTENCE

import numpy as np
import tensorflow as tf

# JPEG: colors of every second column, a restart marker after each unit, four inks, and RGB that was not converted.
HALVED = base64.b85decode(
    "|JeWF01!$>Nk#wx0RR9200961|JwjV01XKW3knDg3knMk4h;_zAQcl55)&sJ9v2`kDKRiEDJ?8BI!Zn>HbyrrEkIX6ModmpQ&KWM"
    "T47pHU`kO^PygEhLjevB4iga*CKVMXPc<zyPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPf!2A"
    "01*fP5dakf0U-"
    "ba5di}c0sq7R7XSeP0RaF20000000000000F51P1@a04ERt00jaB1_J;900000000000RsdP0wD!4GeHwFLQ!FIfw9s5!~huq0RR"
    "F60000000000000001px#A0|x)Z03#6q0Rsa92LJ#700000000000RjXA1riYy6CooqGc<Ak+5ij#0RRFK0}%i}0A;=-M+C3p-"
    "GR>WB*|!)Er<yMBIZ}QMqRs2j4>qXN2(7ar*Q?A8mjBaiV=Efa;PeyBWZ}RHR8%0cBu0g;8AX8Lvd?%?KZPovPuj=b)<$zrrr}o8"
    "|YK*`U!W>@_#_Pe{rJW>mZXI5e3MP;%~$M*#"
)
RESTARTED = base64.b85decode(
    "|JeWF01!$>Nk#wx0RR9200961|JwjV01XKW3knDg3knMk4h;_zAQcl55)&sJ9v2`kDKRiEDJ?8BI!Zn>HbyrrEkIX6ModmpQ&KWM"
    "T47pHU`kO^PygEhLjevB4iga*CKVMXPc<zyPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPf!2A"
    "01*fP5dakf0U`hb5di}c0sq7R7XSeP0RaF20000000000000051P1@a04ERt0Rsa91P1^B00000000000RsdA5g`RJ6EZVFLQ!FI"
    "fw9s5!~hln0RaI30000000000000001O*2F!~h`?009F62LS*80000000000009C81R(<v5)?8sG;#mk00aO5|Jncy0|5X65d#qb"
    "KLE2IQKN#H^v97pUZmPRYuP&?1&3TlaeG??*^fB2;-%a*1XFd0l8$cOw?F^TsRL4OmV8!SmY(3`A-!5PWdoKencPJ@YgY-"
    "U|Ix`Gp-;Q?lP{m;et;Vv$fF_VL;upj2ciHpg$jPA{6GKM"
)
INKS = base64.b85decode(
    "|JeWT01iQ9Z(?NtWB>pF0095n07C#24i6F!4HOa(5*HN|7#=bq9vmDVJuEIHGD$#8OGiLPMNnFEVo+6WRz*f+h-"
    "Gbedx3(1PGF6fjD41Ket~@dzyK5o01*Hc1Va%3O%VWD5dcdO0RO}Q82|wR0RaI40000000000000F51_J^F|HJ?*5C8!J1Ox>G1p"
    "oj5000000096I0s{mg1rjkqG*Mx3fd(@06p^vP;s4qI4g^C0O#oQ{O8@{r0BVPV+!jilQeCgDth1ET4sM)@TQ!o$Z&Q~=3|0Xapb"
    "dgvmQWc>Hzg#nQ3$3kOd;&fsBw597JKd(x>ih*V0eJ&>P^rWqdNw-*<xa!Fg4F)B|L!60}Yh2SmAn;eb<vdV=yEoX=K=Dd-"
    "PII1q10=v1ZXmqF~nEKZ$8lni~V*NtzA^$X{XGx&5s57qVKGOVm6`?zqFJllV$edtv#wQd0xqht6xVUY}T$zyH|"
)
UNCONVERTED = base64.b85decode(
    "|JeWT01iQ9Z(?NtWB>pF0095n07C!}3k(hn3J?wr4iXU%6BsBO7#0>7F(V}%C^|DeJUKHsH$X^SPC!IgMK?H5ZBbWWVrOV)K233X"
    "aAbH~WoKjmzyJ{l01*Hc15yzHM-c!*5di<h02%-"
    "R0RRI50RR9100000000051^@vA1PA}b04)#z0RjXB0|)~F000000000101*NM1R(_m5<xLhaWXYwfswJ{@Dwz1g8$k83<FXCM*u<"
    "q06zer!+X1Mbn@9WahXg8p>o#br6}o$i^GvBA2J<PnhTG=D`Oj$A}l}~0-"
    "U0dA=42JYjjKH@dPwyQHl`uXA2?6CBQAJ`@+T3RPqc`-XJe<>W2$2hn<F-dM}+tQ#cWG(}JC(rVQXP+nR^Wh3d`s^jbADnS@aU-"
    "5ooDsqf*zF_(ltg2jtB3oMGNXyb1$gxr}e1%baNPvM=}{(|>KxAc9Am&5xKls;+wv(<2ehne<FVf~nVy~1ZL_jEsbuIbudG4)^n*"
    "#"
)
ANIMATION = base64.b85decode(
    "M@dFFH(>_=1ptBo0N3j!<lrNw-wt!t2-"
    "(Ls;Iu2D#SpHlBP;*_000L71pojDApi#m5CDKc0006F1XzerfPsPr6CMaafWQF*2MTB`5D)+?000002LJ^Cf^FXnLg5!4=qf4IFp"
    "9(%LA@py$SoSTF$f?42>=KXK!5-P00ssaU|@hif(9K5WN6?3fdUvS9ta2kI{"
)
STILL = base64.b85decode(
    "M@dFFH(>_=1ptBo0N3j!<lrNw-wt!t2-(Ls;Iu2D#SpHlBP;*_000L71pojDApi#m5CDKc0006F1XzerfPsPr6CMaafWQF*2MTB`5D)-6"
)
LOSSY = base64.b85decode(
    "Qb|TeU;qFBS4BclR!}$~Q~&?~Pyzs*0V)ds2>=3sLM5;Qbh-"
    "c%S|!xvX;c6J{^)x<ww56E++lYxzU?WQ9rxswkw77Mmw&AW|Neiwv?{5Dxk3J8tVe8cRlqG5O{LR82iZsf"
)
LOSSLESS = base64.b85decode(
    "Qb|Tez5oCKS4BclR!}%hu>b%7F9bjV5a+-"
    "&0Dv?&B$xj$(@yirA53K1YD4cuBUu;=MzH`Kx}+y61EWZi6fHBai}i1bzQ=rlB$BPzi-"
    "7!+D99Iqh(8MQ$sYmvWVAx>C2UUnLjV8$or>-vg6x(`fFqb81TT)-"
    "PP5U~FP?V4!ugkHtf7xx=I~DMylC}_$I%Ygn*K$EO#FaX#y`PbHI)U0ktCV1ySHsb^gljT+6hU}a|XtqzC#>ym3&)$2><"
)
MOVING = base64.b85decode(
    "Qb|TelmP$$S4BclR!}%t3IG5A5&!@I1ONa9002QwNlgX-"
    "0000000000K~7CZumAu600000000C400jU500002R!}%hmjD0&F9bjV5a+-"
    "&0Dv?^*9e{e&msA=xo>|k4FE7nox9_903Z7U&}e)GX>0-"
    "jOfq*Ld~nh~2?;0wr@Is({KYKR8xW%|_0w@AYTRLsCs2rcdBwrz3;fN=^ttqnm9AexSN_@Sx83;zV;-"
    "vi&J3N)G*s_29=0~$0ELkxnX$XKZAA1xJ|Llt3#qiR&WD(CsjZK>_PGxLK~7CZumAu600000000C400jU500002R!}%hmjD0&F9b"
    "jV5a+-&0Dv?^*9e{e&msA=xo>|k4FE7nox9_903Z7U&}e)GX>0-"
    "jOfq*Ld~nh~2?;0wr@Is({KYKR8xW%|_0w@AYTRLsCs2rcdBwrz3;fN=^ttqnm9AexSN_@Sx83;zV;-"
    "vi&J3N)G*s_29=0~$0ELkxnX$XKZAA1x);{;u*2fGn<)V#so^c`72P6~#"
)


def picture(height, width, seed=0):
    y, x = np.mgrid[0:height, 0:width]
    noise = np.random.RandomState(seed).randint(-20, 20, (height, width, 3))
    colors = np.stack([127 + 100 * np.sin(x / 3.0), 127 + 100 * np.cos(y / 4.0), (x * 7 + y * 5) % 256], -1)
    return np.clip(colors + noise, 0, 255).astype(np.uint8)


def encoded(image, **attrs):
    return tf.io.encode_jpeg(image, **attrs).numpy()


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(color, depth, rows, *chunks, height=None, width=None):
    """A file of packed rows."""
    width = width or len(rows[0]) * 8 // depth // {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
    header = struct.pack(">IIBBBBB", width, height or len(rows), depth, color, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    parts = [chunk(b"IHDR", header), *chunks, chunk(b"IDAT", data), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def bmp(bits, height, width, rows):
    size = 54 + sum(map(len, rows))
    header = b"BM" + struct.pack("<IHHI", size, 0, 0, 54)
    return header + struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, 0, 0, 0, 0, 0, 0) + b"".join(rows)


def cases(c):
    jpegs(c)
    truncated(c)
    pngs(c)
    others(c)


def decode(c, op, name, data, *inputs, **attrs):
    c.op(op, [np.array(data, object), *inputs], name, message=SENTENCE, **attrs)


def jpegs(c):
    image = picture(17, 21)
    for name, data in {
        "quartered": encoded(image, quality=80),
        "whole": encoded(image, quality=60, chroma_downsampling=False),
        "halved": HALVED,
        "progressive": encoded(image, quality=50, progressive=True),
        "restarted": RESTARTED,
        "inks": INKS,
        "unconverted": UNCONVERTED,
        "gray": encoded(image[:, :, :1]),
        "worst": encoded(image, quality=1),
    }.items():
        decode(c, "DecodeJpeg", name, data)
        decode(c, "DecodeJpeg", f"{name}/gray", data, channels=1)
        c.op("ExtractJpegShape", [np.array(data, object)], name, output_type="int32")
        if name in ("quartered", "halved", "whole"):
            decode(c, "DecodeJpeg", f"{name}/plain", data, fancy_upscaling=False)
            decode(c, "DecodeJpeg", f"{name}/accurate", data, dct_method="INTEGER_ACCURATE")
            for ratio in (2, 4, 8):
                decode(c, "DecodeJpeg", f"{name}/{ratio}", data, ratio=ratio)
            for window in ([0, 0, 17, 21], [3, 5, 4, 6], [12, 16, 5, 2], [2, 8, 9, 1]):
                decode(c, "DecodeAndCropJpeg", f"{name}/{window}", data, np.int32(window))
    for size in ((1, 1), (2, 3), (8, 8), (16, 5)):
        decode(c, "DecodeJpeg", f"size/{size[0]}", encoded(picture(*size)))
    data = encoded(image)
    for name, window in {
        "wide": [0, 0, 3, 22],
        "low": [-1, 0, 3, 3],
        "empty": [0, 0, 0, 3],
        "short": [0, 0, 1],
    }.items():
        decode(c, "DecodeAndCropJpeg", f"refused/{name}", data, np.int32(window))
    decode(c, "DecodeJpeg", "refused/ratio", data, ratio=3)
    decode(c, "DecodeJpeg", "refused/channels", data, channels=4)
    decode(c, "DecodeJpeg", "refused/two", data, channels=2)
    decode(c, "DecodeJpeg", "refused/method", data, dct_method="FLOAT")
    c.op("ExtractJpegShape", [np.array(data[:50], object)], "refused", output_type="int64", message=SENTENCE)
    c.op("ExtractJpegShape", [np.array(data, object)], "wide", output_type="int64")


def truncated(c):
    image = picture(40, 24)
    data = encoded(image, quality=70)
    for share in (0.01, 0.3, 0.6, 0.9):
        cut = data[: int(len(data) * share)]
        decode(c, "DecodeJpeg", f"truncated/{share}", cut)
        decode(c, "DecodeJpeg", f"truncated/{share}/third", cut, acceptable_fraction=0.3)
    decode(c, "DecodeJpeg", "truncated/end", data[:-2])
    decode(c, "DecodeJpeg", "truncated/end/recovered", data[:-2], try_recover_truncated=True)
    decode(c, "DecodeJpeg", "truncated/progressive", encoded(image, progressive=True)[:700])
    # A few bytes that announce an image of many.
    frame = data.index(b"\xff\xc0")
    huge = data[: frame + 5] + b"\xff\xff\xff\xff" + data[frame + 9 :]
    decode(c, "DecodeJpeg", "truncated/huge", huge)
    for name, damaged in {
        "empty": b"",
        "marker": b"\xff\xd8\xff",
        "text": b"not an image",
        "nothing": data[:2],
    }.items():
        decode(c, "DecodeJpeg", f"damaged/{name}", damaged)


def pngs(c):
    gray = [bytes([i * 20 + j for j in range(4)]) for i in range(3)]
    color = [bytes((i * 50 + j * 13) % 256 for j in range(12)) for i in range(3)]
    wide = [bytes((i * 57 + j * 29) % 256 for j in range(24)) for i in range(3)]
    palette = chunk(b"PLTE", bytes([10, 20, 30, 40, 50, 60, 200, 100, 0, 7, 8, 9]))
    files = {
        "gray": png(0, 8, gray),
        "bits": png(0, 1, [b"\xa0", b"\x50"], width=5),
        "pairs": png(0, 2, [b"\x1b\xe4"]),
        "gray-alpha": png(4, 8, color),
        "color": png(2, 8, color),
        "color-gamma": png(2, 8, color, chunk(b"gAMA", struct.pack(">I", 45455))),
        "color-clear": png(2, 8, color, chunk(b"tRNS", bytes([0, 0, 0, 13, 0, 26]))),
        "alpha": png(6, 8, [row[:8] for row in color]),
        "palette": png(3, 2, [b"\x1b", b"\xe4"], palette),
        "palette-clear": png(3, 2, [b"\x1b", b"\xe4"], palette, chunk(b"tRNS", bytes([0, 99]))),
        "deep": png(2, 16, wide),
        "deep-gray": png(0, 16, [row[:6] for row in wide]),
    }
    for name, data in files.items():
        for channels in (0, 1, 3, 4):
            decode(c, "DecodePng", f"{name}/{channels}", data, channels=channels, dtype="uint8")
        decode(c, "DecodePng", f"{name}/deep", data, dtype="uint16")
        decode(c, "DecodeImage", name, data, dtype="float")
    good = files["color"]
    for name, data in {
        "cut": good[:60],
        "header": good[:20],
        "checksum": good[:45] + bytes([good[45] ^ 1]) + good[46:],
        "huge": png(2, 8, color, height=20000, width=20000),
        "too-large": png(2, 8, color, height=1 << 27, width=4),
    }.items():
        decode(c, "DecodePng", f"damaged/{name}", data, dtype="uint8")
    decode(c, "DecodePng", "channels", good, channels=2, dtype="uint8")


def others(c):
    still = {"ANIMATION": ANIMATION, "STILL": STILL}
    for name, data in still.items():
        decode(c, "DecodeGif", name, data)
        decode(c, "DecodePng", name, data, dtype="uint8")
        for expand in (False, True):
            decode(c, "DecodeImage", f"{name}/{expand}", data, dtype="uint16", expand_animations=expand)
    decode(c, "DecodeImage", "GIF/gray", STILL, channels=1, dtype="uint8")
    c.op("DecodeGif", [np.array(STILL[:12], object)], "damaged")
    rows = {
        8: [bytes([1, 2, 3, 0]), bytes([4, 5, 6, 0])],
        24: [bytes(range(9)) + bytes(3), bytes(range(9, 18)) + bytes(3)],
        32: [bytes(range(12)), bytes(range(12, 24))],
    }
    for bits, lines in rows.items():
        for height in (2, -2):
            for channels in (0, 3, 4):
                if channels != 3 or bits != 8:
                    decode(
                        c, "DecodeBmp", f"{bits}/{height}/{channels}", bmp(bits, height, 3, lines), channels=channels
                    )
        decode(c, "DecodeImage", f"BMP/{bits}", bmp(bits, 2, 3, lines), dtype="float")
    good = bmp(24, 2, 3, rows[24])
    for name, data in {
        "cut": good[:-1],
        "head": good[:20],
        "width": bmp(24, 2, -3, rows[24]),
        "height": bmp(24, 0, 3, []),
        "bits": bmp(16, 2, 3, rows[24]),
        "huge": bmp(24, 1 << 20, 1 << 20, rows[24]),
    }.items():
        decode(c, "DecodeBmp", f"damaged/{name}", data)
    decode(c, "DecodeBmp", "gray", good, channels=1)
    for name, data in {"LOSSY": LOSSY, "LOSSLESS": LOSSLESS, "MOVING": MOVING}.items():
        decode(c, "DecodeWebP", name, data)
        decode(c, "DecodeWebP", f"{name}/three", data, channels=3)
        decode(c, "DecodeImage", name, data, dtype="uint8", expand_animations=False)
        decode(c, "DecodeWebP", f"{name}/cut", data[: len(data) // 2])
    jpeg, color = encoded(picture(2, 2)), png(2, 8, [bytes(3)])
    for op in ("DecodeJpeg", "DecodePng", "DecodeGif", "DecodeBmp", "DecodeImage"):
        attrs = {"dtype": "uint8"} if op in ("DecodePng", "DecodeImage") else {}
        for name, data in {
            "jpeg": jpeg,
            "png": color,
            "gif": STILL,
            "bmp": good,
            "none": b"????",
            "nothing": b"",
        }.items():
            decode(c, op, f"other/{name}", data, **attrs)
        c.op(op, [np.array([jpeg], object)], "rank", message=SENTENCE, **attrs)
    for name, data in {"png": color, "gif": STILL, "bmp": good}.items():
        decode(c, "DecodeAndCropJpeg", f"other/{name}", data, np.int32([0, 0, 1, 1]))
