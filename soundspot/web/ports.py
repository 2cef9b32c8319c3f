"""Whether the page can listen where it should; without gradio, so that it is known at once."""

import socket

from soundspot.common.errors import SoundspotError

LAST_PORT = 65_535


def check_port(host: str, port: int) -> None:
    """Refuse a port that is out of range or taken, or an address of another computer."""
    if not 1 <= port <= LAST_PORT:
        raise SoundspotError(f"--port {port} is out of range: choose one from 1 to {LAST_PORT}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError as error:
        raise SoundspotError(
            f"cannot listen on {host}:{port} ({error.strerror}): the port is taken, or the address "
            "is not one of this computer; choose another --port or --host"
        ) from error
