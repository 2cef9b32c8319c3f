"""Serve the page: gradio's launch, its settings, and its shutdown."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from soundspot.common.errors import SoundspotError
from soundspot.media.images import only_listed_formats
from soundspot.parallel.heap import limit_heaps
from soundspot.web.comparing import ServedModels, trained_models
from soundspot.web.handlers import Handlers
from soundspot.web.layout import build_page
from soundspot.web.limits import Limits
from soundspot.web.login import Login
from soundspot.web.markup import asset
from soundspot.web.middleware import RequestFilter
from soundspot.web.sessions import SessionStore

FONTS = {"font": ["system-ui", "sans-serif"], "font_mono": ["ui-monospace", "monospace"]}


@contextmanager
def serving(
    models: Sequence[str] = (),
    host: str = "127.0.0.1",
    port: int | None = None,
    device: str = "auto",
    login: Login | None = None,
    **limits: Any,
) -> Iterator[str]:
    """Serve the page while the context lasts.

    Args:
        models: Names or paths, the default first. Default: the trained models that ship.
        host: Address to listen on.
        port: Port to listen on. Default: a free one.
        device: Where to compute, as `load` takes it.
        login: Who may use the page. Default: everybody who reaches it.
        limits: Attributes of `Limits`.

    Yields:
        The address of the page.
    """
    limited = Limits(**limits)
    served = ServedModels(tuple(models) or trained_models(), device)
    for name in served.names:
        served.get(name)  # a model that cannot be loaded is reported now, not to a visitor
    sessions = SessionStore(limited)
    with _environment(sessions.root), only_listed_formats(), sessions.sweeping():
        page = build_page(Handlers(served, limited, sessions))
        try:
            yield _launch(page, sessions, host, port, login)
        finally:
            page.close(verbose=False)
            sessions.clear()


def _launch(
    page: gr.Blocks, sessions: SessionStore, host: str, port: int | None, login: Login | None
) -> str:
    page.api_open = False  # whoever calls a queued function waits in the queue
    request_filter = Middleware(RequestFilter, sessions=sessions, login=login)
    try:
        _, url, _ = page.launch(
            server_name=host,
            server_port=port,
            prevent_thread_lock=True,
            quiet=True,
            share=False,
            ssr_mode=False,
            run_history=False,
            enable_monitoring=False,
            mcp_server=False,
            pwa=False,
            footer_links=[],
            max_file_size=f"{sessions.limits.upload_mb}mb",
            state_session_capacity=sessions.limits.visitors,
            app_kwargs={"middleware": [request_filter]},
            theme=gr.themes.Default(primary_hue="blue", **FONTS),
            css=asset("page.css"),
            js=asset("page.js"),
        )
    except (OSError, OverflowError) as error:
        raise SoundspotError(
            f"cannot listen on {host}:{port}: the port is taken, or the address is not one of this "
            "computer; choose another --port or --host"
        ) from error
    return str(url)


def serve_until_interrupted(
    say: Callable[[str], None],
    host: str,
    port: int,
    models: Sequence[str],
    limits: dict[str, Any],
    device: str = "auto",
    login: Login | None = None,
) -> None:
    """Serve the page until Ctrl+C or SIGTERM."""
    limit_heaps()
    with serving(models, host, port, device, login, **limits) as url:
        say(f"soundspot: {url}")
        say("Stop with Ctrl+C.")
        # The visitors' files must be removed, however the server is stopped.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


@contextmanager
def _environment(root: Path) -> Iterator[None]:
    """Replace the settings that gradio reads from the environment by those the page needs."""
    ours = {
        "GRADIO_TEMP_DIR": str(root),
        "GRADIO_ANALYTICS_ENABLED": "False",
        "GRADIO_ANALYTICS_MAX_EVENTS": "1",  # it records them even so
    }
    names = [name for name in os.environ if name.startswith("GRADIO_")]
    before = {name: os.environ.pop(name) for name in names}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)
        os.environ.update(before)
