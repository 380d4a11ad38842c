# Reads the project, installed packages and the tests through the import system.
import sys

for name in ("torch", "numpy", "pip", "pytest", "spark_rl", "setuptools", "yaml", "tests"):
    try:
        __import__(name)
        print("ESCAPED: imports", name)
    except ImportError:
        pass
for name in list(sys.modules):
    if "spark_rl" in name:
        print("ESCAPED: sees", name)


def solve(n):
    return n
