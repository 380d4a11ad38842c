# Breaks the parser with nesting.
# battery: repeat ( 5000
