"""Switches this program: `import ferroflow.tensorflow` as its first line makes TensorFlow's servers Ferroflow's.

The variable `FERROFLOW` overrides it: with 0 nothing changes, with 1 no server may be stock's.
"""

from __future__ import annotations

from ferroflow import switch

switch.install()
