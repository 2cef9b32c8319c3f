"""Whether the page can, and may, listen where it should.

Does not import gradio, so that it is known at once.
"""

import ipaddress
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


def check_access(host: str, has_login: bool, everybody: bool) -> None:
    """Refuse to let everybody who reaches this computer use the page, unless that is wanted."""
    if has_login and everybody:
        raise SoundspotError("--auth and --no-auth exclude each other: give one of them")
    if not (has_login or everybody or is_loopback(host)):
        raise SoundspotError(
            f"with --host {host} other computers can reach the page: set a password with --auth "
            "USER:FILE, or say --no-auth to let everybody in"
        )


def is_loopback(host: str) -> bool:
    """Whether only this computer can reach an address."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        addresses = [str(address[0]).partition("%")[0] for *_, address in found]
        return all(ipaddress.ip_address(address).is_loopback for address in addresses)
    except (OSError, ValueError):
        return False
