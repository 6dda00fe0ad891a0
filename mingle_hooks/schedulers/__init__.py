"""What schedulers tell a process about its job: one adapter each."""
