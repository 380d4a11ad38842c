# Ten megabytes of source.
# battery: pad 10485760
def solve(n):
    return n
