"""The bridge: inside a box without a network, lets programs reach the proxy that knows which hosts are allowed.

Run in the box as `python -I -S bridge_main.py SOCKET PORT FILTER PROGRAM ARGUMENT…`; standard library only. Listens on
the box's own loopback, hands every connection on to the proxy's socket, and becomes the program under the filter,
which may not open such sockets itself. The part that listens cannot be looked into by the program.
"""

import contextlib
import ctypes
import os
import signal
import socket
import struct
import sys
import threading

_DUMPABLE, _PDEATHSIG, _SECCOMP = 4, 1, 22
_CHUNK = 65_536
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    place, port, rules, *argv = sys.argv[1:]
    listener = socket.create_server(("127.0.0.1", int(port)), backlog=64)
    child = os.fork()
    if child == 0:
        if os.fork() == 0:  # twice, so that the program has no child that it did not start
            serve(listener, place)
        os._exit(0)
    os.waitpid(child, 0)
    listener.close()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    _filter(bytes.fromhex(rules))
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
        sys.exit(126 if isinstance(error, PermissionError) else 127)


def serve(listener: socket.socket, place: str) -> None:
    os.setsid()
    _libc.prctl(_DUMPABLE, 0, 0, 0, 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):  # whoever reads the program's output waits for the last one that has it open
        os.dup2(nothing, number)
    while True:
        near, _ = listener.accept()
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(place)
        except OSError:
            near.close()
            far.close()
            continue
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def _filter(program: bytes) -> None:
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    if _libc.prctl(_SECCOMP, 2, header, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the filter was not accepted")


if __name__ == "__main__":
    main()
