# Floods standard error through the raw descriptor.
import os

while True:
    os.write(2, b"y" * 65536)
