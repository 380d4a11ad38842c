# Connects out, and to services on this machine.
import socket

for address in (("127.0.0.1", 22), ("127.0.0.1", 80), ("127.0.0.1", 5432), ("127.0.0.1", 8000)):
    try:
        socket.create_connection(address, timeout=0.2)
        print("ESCAPED: connected to", address)
    except ConnectionRefusedError:
        print("ESCAPED: the network answered")
    except OSError:
        pass


def solve(n):
    import urllib.request

    return urllib.request.urlopen("http://127.0.0.1:8000/", timeout=0.2).read()
