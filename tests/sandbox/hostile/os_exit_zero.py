# Ends the process at once with a success code.
import os

os._exit(0)
