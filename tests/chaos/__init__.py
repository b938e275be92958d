"""Real things broken: servers, lines, an object store and processes; and a judge who reads what is left. See docs/chaos.md."""
