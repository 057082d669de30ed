"""Socket families that no network namespace holds back."""

import socket

for name in ("AF_VSOCK", "AF_NETLINK", "AF_PACKET", "AF_ALG", "AF_BLUETOOTH", "AF_CAN"):
    family = getattr(socket, name, None)
    if family is None:
        continue
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, 5):
        try:
            socket.socket(family, kind).close()
            print("FAMILY", name)
        except OSError as error:
            print("stopped", name, error)
