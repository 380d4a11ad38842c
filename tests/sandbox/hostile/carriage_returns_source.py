# Mixes line endings so that a reviewer and Python see different lines.def solve(n):
    return n…