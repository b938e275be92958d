"""How much code one call runs, and how much there is: numbers that may only fall (`budget.yaml`)."""
