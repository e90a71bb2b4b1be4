"""Task names, and how an environment is made from one. Loads neither mujoco, gymnasium nor torch."""
