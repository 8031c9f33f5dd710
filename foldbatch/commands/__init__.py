"""The commands of ``foldbatch``, one a module: functions from arguments to an exit status."""
