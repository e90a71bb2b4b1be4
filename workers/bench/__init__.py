"""Measurements of a training on this machine: its stages, its update, its start."""
