"""Environments: many worlds stepped at once, behind Gymnasium's vector interface.

Importing this package loads neither mujoco nor gymnasium; import the module that is needed.
"""
