"""The front door: `motrix-rl` and `train.py`."""
