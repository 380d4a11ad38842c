# Breaks the compiler with ten thousand minus signs.
# battery: repeat - 10000
