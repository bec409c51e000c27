"""Starts a program on a terminal of its own, and hangs up when it reads a line.

    on_a_terminal.py WORDS PROGRAM ARG...

It says `ready` once the screen has shown these words and nothing is written any more: a client that draws when its terminal goes may end
itself. SIGHUP is ignored there, as behind `nohup` and in shells that do so: only the terminal goes.
"""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios

master, slave = pty.openpty()
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
pid = os.fork()
if pid == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.close(master)
    for descriptor in range(3):
        os.dup2(slave, descriptor)
    os.close(slave)
    os.execvp(sys.argv[2], sys.argv[2:])
os.close(slave)
QUIET_S = 3
screen = ""
told = False
while True:
    ready, _, _ = select.select([master, sys.stdin], [], [], QUIET_S)
    if sys.stdin in ready:
        break
    if master in ready:
        # A program waits if its screen is not read.
        screen += os.read(master, 65536).decode("utf8", "replace")
    elif sys.argv[1] in screen and not told:
        told = True
        print("ready", flush=True)
os.close(master)
print("hung up", flush=True)
os.waitpid(pid, 0)
