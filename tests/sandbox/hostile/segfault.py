# Crashes the interpreter.
import ctypes


def solve(n):
    ctypes.string_at(0)
