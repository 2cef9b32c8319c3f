"""The verbs of the page that runs in the visitor's browser: serve, page."""

from pathlib import Path

from soundspot.cli.options import say


def serve(*, host: str = "127.0.0.1", port: int = 7860) -> None:
    """Open the page for your own videos, photos, camera and microphone; nothing is uploaded.

    The page computes in the browser. This command only hands out its files.

    Args:
        host: Address to listen on; only this computer can reach the default.
        port: Port to listen on.
    """
    from soundspot.inference.static_page import open_server

    with open_server(host, port) as server:
        shown = "localhost" if host in ("127.0.0.1", "0.0.0.0", "::", "") else host
        say(f"http://{shown}:{server.server_address[1]}/ - stop with Ctrl+C")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("stopped")


def page(out: Path, /) -> None:
    """Write the page as a folder for any static host.

    Args:
        out: The folder; a page that is there already is replaced.
    """
    from soundspot.inference.static_page import write_page

    say(f"{out}: {write_page(out) / 1e6:.0f} MB; any web server can show this folder")
