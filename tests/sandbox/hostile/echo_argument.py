# Echoes its argument.
def solve(*args, **kwargs):
    return args[0] if args else kwargs
