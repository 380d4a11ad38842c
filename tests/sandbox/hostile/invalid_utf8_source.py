# Is not UTF-8.
def solve(n):
    return 'ÿşÃ('
