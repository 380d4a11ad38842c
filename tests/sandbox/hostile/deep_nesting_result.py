# Answers with a value nested a million levels deep, to crash the reader.
import os

frame = b'{"kind":"value","value":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"


def solve(n):
    os.write(3, len(frame).to_bytes(4, "big") + frame)
    return n
