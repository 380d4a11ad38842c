# Burns the processor inside one C call that no exception interrupts.
import re


def solve(n):
    return re.match(r"(a+)+$", "a" * 60 + "b")
