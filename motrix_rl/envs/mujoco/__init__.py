"""Tasks stepped by MuJoCo's batch API: one base class, one file a task, options in a light module."""
