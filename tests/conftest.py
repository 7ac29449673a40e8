"""What every test needs, whoever starts them."""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it runs in the background
