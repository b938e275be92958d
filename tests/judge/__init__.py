"""The judge of every single change, for the simulator and for the small worlds; shares no code with what it judges."""
