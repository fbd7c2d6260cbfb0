"""Recipes for random ops with keys and seeds."""

import values
from recipes import Like, recipe


def _seed(s):
    return [s.small(-3, 1 << 20), s.small(0, 99)]


def _generator(s):
    """A key, a counter and an algorithm: Philox, or whichever the server prefers."""
    return [[s.small(0, 1 << 30)], [s.small(0, 1 << 30), s.small(0, 9)], s.pick([1, 1, 3])]


def _size(s):
    """Mostly few numbers; at times enough for several blocks of the generator."""
    return s.shape() if s.chance(0.8) else (s.small(1, 2000),)


@recipe("StatelessRandomNormal", "StatelessRandomUniform", "StatelessRandomUniformFullInt", "StatelessTruncatedNormal")
def _seeded(s, a):
    return [_size(s), _seed(s)]


@recipe(
    "StatelessRandomNormalV2",
    "StatelessRandomUniformV2",
    "StatelessRandomUniformFullIntV2",
    "StatelessTruncatedNormalV2",
)
def _generated(s, a):
    return [_size(s), *_generator(s)]


@recipe("StatelessRandomUniformInt")
def _seeded_int(s, a):
    return [_size(s), _seed(s), *_between(s)]


@recipe("StatelessRandomUniformIntV2")
def _generated_int(s, a):
    return [_size(s), *_generator(s), *_between(s)]


def _between(s):
    low = s.small(0, 20)
    return [low, low + s.small(1, 1000)]


@recipe("StatelessRandomGetKeyCounter", "StatelessRandomGetKeyCounterAlg")
def _key(s, a):
    return [_seed(s)]


@recipe("StatelessShuffle")
def _shuffle(s, a):
    return [Like(s.shape(1)), *_generator(s)]


@recipe("StatelessMultinomial")
def _multinomial(s, a):
    return [Like((s.small(0, 4), s.small(1, 6))), s.small(0, 9), _seed(s)]


def _sized(s):
    """A shape, and one of parameters that it repeats."""
    parameters = s.shape()
    return (*s.shape()[:2], *parameters), parameters


@recipe("StatelessRandomGammaV2", "StatelessRandomPoisson")
def _gamma(s, a):
    shape, parameters = _sized(s)
    return [shape, _seed(s), Like(parameters, values.pos)]


@recipe("StatelessRandomGammaV3")
def _generated_gamma(s, a):
    shape, parameters = _sized(s)
    return [shape, *_generator(s), Like(parameters, values.pos)]


@recipe("StatelessRandomBinomial")
def _binomial(s, a):
    shape, parameters = _sized(s)
    return [shape, _seed(s), Like(parameters, values.pos), Like(parameters, values.pos)]


@recipe("StatelessParameterizedTruncatedNormal")
def _truncated(s, a):
    shape, parameters = _sized(s)
    low = Like(parameters, values.unit)
    return [shape, _seed(s), low, Like(parameters, values.pos), Like((), values.unit), 2 + s.small(0, 3)]


@recipe("RandomUniform", "RandomStandardNormal", "TruncatedNormal")
def _stateful(s, a):
    _fix(s, a)
    return [_size(s)]


@recipe("RandomUniformInt")
def _stateful_int(s, a):
    _fix(s, a)
    return [_size(s), *_between(s)]


@recipe("RandomShuffle")
def _random_shuffle(s, a):
    _fix(s, a)
    return [Like(s.shape())]


@recipe("RandomGamma", "RandomPoisson", "RandomPoissonV2")
def _random_parameters(s, a):
    _fix(s, a)
    return [s.shape(), Like(s.shape(), values.pos)]


@recipe("Multinomial")
def _random_multinomial(s, a):
    _fix(s, a)
    return [Like((s.small(0, 4), s.small(1, 6))), s.small(0, 9)]


@recipe("ParameterizedTruncatedNormal")
def _random_truncated(s, a):
    _fix(s, a)
    batch = s.small(1, 4)
    like = s.pick([(), (batch,)])
    return [
        (batch, s.small(1, 9)),
        Like(like, values.unit),
        Like(like, values.pos),
        Like(like, values.unit),
        2 + s.small(0, 3),
    ]


def _fix(s, a):
    """Seeds, without which nobody could say what is drawn."""
    a["seed"], a["seed2"] = s.small(1, 1000), s.small(0, 1000)
