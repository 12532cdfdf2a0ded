"""Puts Pulsar's own balancing back to what was found. Whoever calls it holds what was found, and forgets it then."""

from __future__ import annotations

from trimtab_operator.pulsar.admin import Admin
from trimtab_operator.pulsar.balancing import Found


async def put_back(admin: Admin, found: Found, *, dry_run: bool = False) -> list[str]:
    """Write back what `found` says, in words what was done. Can be done again after it failed in the middle.

    dry_run: only say what would be done. Raises `PulsarError`.
    """
    overrides = await admin.overrides()
    todo, done = found.to_put_back(overrides), list[str]()
    for switch, before in sorted(found.overrides.items()):
        if switch not in todo:
            now = overrides.get(switch)
            done.append(f"{switch} is left as it is ({'no dynamic value' if now is None else now})")
        elif before is None:
            if not dry_run:
                await admin.drop_override(switch)
            done.append(f"{switch}: dynamic value dropped, each broker's file counts again")
        else:
            if not dry_run:
                await admin.override(switch, before)
            done.append(f"{switch} = {before}, as it was found")
    return done
