# Leaks data in a datagram and in a name lookup.
import socket

try:
    leak = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    leak.sendto(b"secret", ("127.0.0.1", 53))
    print("ESCAPED: sent a datagram")
except OSError:
    pass
try:
    socket.getaddrinfo("localhost", 80)
    socket.gethostbyname("secret.example.invalid")
    print("ESCAPED: resolved a name")
except OSError:
    pass


def solve(n):
    return n
