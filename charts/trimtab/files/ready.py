"""`helm test`: requests /readyz from the operator's Service until a leader is known or 90 s are over."""

# ruff: noqa: INP001, T201
import sys
import time
import urllib.error
import urllib.request

url, until, said = sys.argv[1], time.monotonic() + 90, ""
while time.monotonic() < until:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  the chart's own Service
            said = answer.read().decode().strip()
    except urllib.error.HTTPError as error:
        said = f"not ready: {error.read().decode().strip()}"
    except OSError as error:
        said = f"no answer: {error}"
    else:
        if "unknown leader" not in said:
            print(f"{url}: {said}")
            sys.exit(0)
    time.sleep(2)
print(f"{url}: {said}", file=sys.stderr)
sys.exit(1)
