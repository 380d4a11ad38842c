# Never ends.
def solve(n):
    while True:
        pass
