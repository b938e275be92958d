"""What lies in the coordinator's tree: the layout, the records and who may write which of them.

Imports `service` and `rules`. Begin with `layout.py`: the paths; then `records.py`: what they hold."""
