"""What each side of a rendezvous can be in, for type checkers: nothing loads this at run time."""

from typing import Literal

# The leader's, or a candidate's: see leader.py.
LeaderState = Literal["gathering", "closing", "formed", "failed", "withdrawn"]
# A member's: see membership.py.
MembershipState = Literal["waiting", "ready", "formed", "failed", "moved", "lost"]
