"""The operator's messages on stderr, as text or as JSON. It is apart from the metrics: it needs only Python."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

LEVELS = ("debug", "info", "warning", "error")

_TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"

_QUIET = ("kopf", "py4j", "kubernetes", "aiohttp.access")
"""Loggers of libraries, from which only warnings are shown."""


class JsonFormatter(logging.Formatter):
    """One line per record: an object with time (RFC 3339), level, logger and message; error: the traceback, if any."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of `record`."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        said = {"time": at, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


def log_to_stderr(level: str, form: str, *, verbose: bool) -> None:
    """Log messages from `level` on. form: text or json. verbose: also what Kopf and the API client do."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if not verbose:
        for name in _QUIET:
            logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
