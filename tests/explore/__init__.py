"""Small worlds, exhaustively: every interleaving of the production code of a few clients on the in-memory services, with faults."""
