"""motrix_rl: asynchronous training of robot policies.

Importing the package loads nothing heavy; the parts are imported where they are used.
"""

__version__ = "0.1.0"
