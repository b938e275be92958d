"""Tables that engines not written here made or changed, held against a model of plain Python; `make golden` runs them."""
