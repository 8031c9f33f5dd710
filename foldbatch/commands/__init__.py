"""The commands of ``foldbatch``, thin: arguments in, output and exit status out.

Each is a module whose ``main(arguments, prog)`` runs it and returns the exit status; `prog` is what help and
errors call it. It raises a `FoldbatchError` for what the user can mend, and an OSError when a file cannot be
read or written.
"""
