"""A FIXTURE: an HTTP server that plays scripted replies, right ones and broken ones.

It runs no model. It speaks every dialect, counts what a client does to it, and says what it is:
every answer carries ``Server: speedstudy-fixture``, its ``/version`` is ``fixture``. In a test it
runs in a thread (``FixtureServer``); ``python -m fixture_server --help`` runs it as a process.
"""

from fixture_server.script import Script
from fixture_server.server import FixtureServer

__all__ = ["FixtureServer", "Script"]
