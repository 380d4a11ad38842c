# Makes the collector and the allocator work: millions of small cyclic objects.
class Node:
    def __init__(self, other):
        self.other = other
        self.me = self


def solve(n):
    node = None
    while True:
        node = Node(node)
