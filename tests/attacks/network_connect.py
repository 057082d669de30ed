"""Services of the host: TCP, abstract and named unix sockets."""

import os
import socket


def ask(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as peer:
        peer.settimeout(1)
        peer.connect(address)
        print(peer.recv(100))


for family, address in (
    (socket.AF_INET, ("127.0.0.1", int(os.environ["A_PORT"]))),
    (socket.AF_UNIX, "\0" + os.environ["A_MARK"]),
    (socket.AF_UNIX, os.environ["A_OUTSIDE"] + "/host.sock"),
):
    try:
        ask(family, address)
    except OSError as error:
        print("stopped", address, error)
