"""Looking at a policy: frames without a display, a video file, a viewer window.

Importing it loads neither mujoco nor torch: how to draw without a display has to be settled before mujoco is
imported.
"""
