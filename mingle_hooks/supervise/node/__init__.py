"""What runs on each host: the warden, the supervisor, and how they start and end COMMAND."""
