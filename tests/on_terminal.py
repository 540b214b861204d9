"""on_terminal.py [--until WORDS] PROGRAM ...: runs it on a terminal of its own and prints, as bytes, all that it shows.
With --until it is ended as soon as it shows these words. The exit status is the program's, or 3 if the words never come."""
import os
import pty
import signal
import sys

words = sys.argv[1:]
until = None
if words[0] == "--until":
    until = words[1].encode()
    words = words[2:]
child, terminal = pty.fork()
if child == 0:
    os.execvp(words[0], words)
shown = b""
seen = False
while True:
    try:
        some = os.read(terminal, 65536)
    except OSError:  # what Linux says where others end the file
        break
    if not some:
        break
    shown += some
    if until is not None and not seen and until in shown:
        seen = True
        os.kill(child, signal.SIGTERM)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
sys.stdout.buffer.write(shown)
if until is not None:
    status = 0 if seen else 3
sys.exit(status)
