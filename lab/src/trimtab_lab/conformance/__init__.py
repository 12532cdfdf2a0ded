"""Conformance: replay recorded decisions of the Java classes, and compare ours one by one.

Belongs here: reading recorded scenarios (decoded text lines), running our strategies on them, and reporting where the
answers differ. May not be here: files, compression, printing; `command` does that.
"""

from trimtab_lab.conformance.recording import InvalidRecordingError
from trimtab_lab.conformance.replay import ALGORITHMS, replay, replay_files
from trimtab_lab.conformance.report import Mismatch, Report, Tally

__all__ = ["ALGORITHMS", "InvalidRecordingError", "Mismatch", "Report", "Tally", "replay", "replay_files"]
