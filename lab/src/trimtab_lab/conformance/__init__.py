"""Conformance: replay what the Java classes decided, and compare decision by decision.

Belongs here: reading recorded scenarios (text lines, already decoded), running our strategies on them, and saying where
the answers differ. May not be here: files, compression, printing; the command line does that.
"""

from trimtab_lab.conformance.recording import InvalidRecordingError
from trimtab_lab.conformance.replay import ALGORITHMS, replay, replay_files
from trimtab_lab.conformance.report import Mismatch, Report, Tally

__all__ = ["ALGORITHMS", "InvalidRecordingError", "Mismatch", "Report", "Tally", "replay", "replay_files"]
