"""The rendezvous over a simulated network, clock and scheduler: one process, one thread, one seed."""
