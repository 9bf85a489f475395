"""What holds for every test."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that runs us in the background has us ignore Ctrl-C, and children inherit that; tests
    # that press it would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
