# One line of a million characters that compiles slowly.
# battery: repeat 1+ 500000
