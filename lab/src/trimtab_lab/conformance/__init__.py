"""Conformance: replay recorded decisions of the Java classes, and compare ours with each of them.

The package reads recorded scenarios (decoded text lines), runs our strategies on them, and reports where the answers
differ. Only `command` opens files, unpacks them, and prints.
"""

from trimtab_lab.conformance.recording import InvalidRecordingError
from trimtab_lab.conformance.replay import ALGORITHMS, replay, replay_files
from trimtab_lab.conformance.report import Mismatch, Report, Tally

__all__ = ["ALGORITHMS", "InvalidRecordingError", "Mismatch", "Report", "Tally", "replay", "replay_files"]
