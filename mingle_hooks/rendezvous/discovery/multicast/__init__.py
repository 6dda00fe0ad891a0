"""Discovery by multicast: beacons, and questions that only the real leader can answer."""
