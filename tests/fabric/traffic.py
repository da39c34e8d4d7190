"""Traffic of our own between two hosts: server PORT | client ADDRESS PORT BYTES | udp ADDRESS PORT PACKETS."""

import socket
import struct
import sys
import time


def server(port):
    listener = socket.create_server(("", port))
    print("listening", flush=True)
    connection, _ = listener.accept()
    total = 0
    while data := connection.recv(1 << 16):
        total += len(data)
    print(total, flush=True)


def client(address, port, total):
    connection = socket.create_connection((address, port))
    print(connection.getsockname()[1], flush=True)
    block = b"x" * 16384
    while total > 0:
        connection.sendall(block[: min(total, len(block))])
        total -= len(block)


def udp(address, port, packets):
    """RoCEv2 as far as a switch sees it: a transport header to queue pair 0x1234, every fourth packet marked (ECN)."""
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.bind(("", 49200))
    for number in range(packets):
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 3 if number % 4 == 0 else 2)
        sender.sendto(bytes([0x2A, 0, 0xFF, 0xFF]) + struct.pack(">II", 0x1234, number) + b"y" * 1000, (address, port))
        if number % 50 == 0:
            time.sleep(0.001)  # the pace of the packets


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    {"server": server, "client": client, "udp": udp}[what](*(int(one) if one.isdigit() else one for one in rest))
