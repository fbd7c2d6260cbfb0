"""Tables that follow a cluster's work in a notebook."""

from __future__ import annotations

import sys
import threading
from typing import Any

# Seconds between two looks at the cluster.
_INTERVAL = 0.5


class LiveTable:
    """An output of a notebook's cell that is drawn again whenever the shown object has changed."""

    def __init__(self, shown: Any, handle: Any) -> None:
        """Starts to follow an object that has a form in HTML.

        Args:
            shown: The object.
            handle: Its output, a `DisplayHandle` of IPython.
        """
        self._shown = shown
        self._handle = handle
        self._drawn = shown._repr_html_()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="ferroflow-table", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        while not self._ended.wait(_INTERVAL):
            self._draw()

    def _draw(self) -> None:
        form = self._shown._repr_html_()
        if form != self._drawn:
            self._drawn = form
            self._handle.update(self._shown)

    def end(self) -> None:
        """Draws the last state, and follows no more."""
        self._ended.set()
        self._thread.join()
        self._draw()


def show(shown: Any) -> LiveTable | None:
    """Shows an object that changes, if this is a notebook."""
    # A notebook's kernel has imported it; elsewhere it need not be installed.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    handle = sys.modules["IPython.display"].display(shown, display_id=True)
    return LiveTable(shown, handle)
