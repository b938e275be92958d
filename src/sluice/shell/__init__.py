"""`sluice sql`: statements that people type or schedulers send, by the engine that can carry them out, and what they answer."""
