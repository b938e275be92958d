"""The simulator: the production code on the in-memory services, where one seed decides interleaving, faults and time."""
