# Answers with an object whose unpickling would run a command.
import os


class Bomb:
    def __reduce__(self):
        return os.system, ("touch /tmp/spark-rl-pickle-bomb",)


def solve(n):
    return Bomb()
