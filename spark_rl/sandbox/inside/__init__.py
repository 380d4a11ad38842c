"""What runs inside the sandbox: confinement, the warm worker, the candidate's side and the judge's side.

Standard library only, relative imports only: this folder alone is visible in the sandbox, under another package name.
"""
