"""Learning algorithms, one package each."""
