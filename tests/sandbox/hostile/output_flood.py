# Prints without end.
def solve(n):
    while True:
        print("x" * 100_000)
