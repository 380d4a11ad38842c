# Computes an integer with billions of digits.
def solve(n):
    return 9**9**9**9
