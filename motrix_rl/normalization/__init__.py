"""Running statistics of observations and returns."""
