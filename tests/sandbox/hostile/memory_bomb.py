# Takes memory until something breaks.
def solve(n):
    hoard = []
    while True:
        hoard.append(bytearray(50_000_000))
