"""Runs first in each of a script's interpreters, under the name ``sitecustomize``.

A script that is killed cannot flush its output: what it printed last would be lost, and
that is what one wants to read. So standard output is written line by line. Without any
buffer (PYTHONUNBUFFERED) each argument of each ``print`` would be a system call.
"""

import io
import os
import sys


def line_by_line() -> None:
    """Write standard output at each end of a line."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # None where it is closed
        sys.stdout.reconfigure(line_buffering=True)


def run_the_interpreters_own() -> None:
    """Import the ``sitecustomize`` that ours is found in place of, if any."""
    here = os.path.dirname(os.path.abspath(__file__))
    places = [place for place in sys.path if os.path.abspath(place) == here]
    mine = sys.modules.pop("sitecustomize", None)
    for place in places:
        sys.path.remove(place)
    try:
        __import__("sitecustomize")
    except ImportError:
        pass
    finally:
        sys.path[:0] = places
        if mine is not None:
            sys.modules["sitecustomize"] = mine


if __name__ == "sitecustomize":
    line_by_line()
    run_the_interpreters_own()
