"""Policies for elsewhere: one ONNX file from raw observation to environment action.

Importing it loads neither torch nor onnx.
"""

from motrix_rl.export.errors import ExportError
from motrix_rl.export.policy_file import ExportReport, can_export, export_checkpoint, export_policy

__all__ = ["ExportError", "ExportReport", "can_export", "export_checkpoint", "export_policy"]
