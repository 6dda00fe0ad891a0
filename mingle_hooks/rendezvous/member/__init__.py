"""A member's side: to dial a leader, and to be checked in with one."""
