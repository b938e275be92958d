"""Cases for `sluice explain`: the rules applied to commits that a person describes."""
