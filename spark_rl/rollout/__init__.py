"""Where completions come from while training: which route, what it can take, and what is refused. Pure; no torch."""
