"""Ports for the servers of these tests."""

import socket

import pytest


def test_a_port_is_kept_for_a_server(free_port):
    port = free_port()
    with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
        other.bind(("127.0.0.1", port))
    with socket.create_server(("127.0.0.1", port)) as server:
        with socket.create_connection(("127.0.0.1", port), timeout=20):
            server.accept()[0].close()
