"""Which requests the page and its programs need; everything else that gradio offers is refused.

Gradio also fetches web addresses that are given instead of files, acts as a proxy to them, and
serves parts of components. The page needs none of that.
"""

import json
import re
from typing import Any
from urllib.parse import unquote

API = "/gradio_api"
LAUNCH = f"{API}/startup-events"  # gradio calls it itself, once, when it starts
UPLOAD, PROGRESS = f"{API}/upload", f"{API}/upload_progress"
HEARTBEAT = f"{API}/heartbeat/"
FILE = f"{API}/file="

_NAME = r"[^/]+"
_GET = re.compile(
    r"/|/config/?|/theme\.css|/favicon\.ico|/manifest\.json|/robots\.txt|/(static|assets)/.+|"
    rf"{API}/(info/?|app_id/?|startup-events|theme\.css|file=.+|heartbeat/{_NAME}|"
    rf"upload_progress|queue/(data|status)|call/(v2/)?{_NAME}/{_NAME})",
    re.DOTALL,
)
ANSWER = re.compile(rf"{API}/(queue/data|call/(v2/)?{_NAME}/{_NAME})")
_POST = re.compile(
    rf"{API}/(upload|queue/join|cancel|reset/?|run/{_NAME}/?|call/(v2/)?{_NAME}/?)", re.DOTALL
)
_ADDRESS = re.compile(r"[\s\x00-\x1f]*([a-z][a-z0-9+.-]+:|[/\\]{2})|.*://", re.I | re.S)
_WEB_ADDRESS = re.compile(r"[\s\x00-\x1f]*[a-z][a-z0-9+.-]+:[/\\]{2}", re.I)


class ExternalAddressError(ValueError):
    """A request gives an address instead of a file."""


def is_allowed(method: str, path: str) -> bool:
    """Whether the page or a program needs this request."""
    if method in ("GET", "HEAD"):
        return _GET.fullmatch(path) is not None and not is_address(path.partition("/file=")[2])
    return method == "POST" and _POST.fullmatch(path) is not None


def is_address(path: str) -> bool:
    """Whether this names something elsewhere, by any protocol, instead of a file here."""
    return any(_ADDRESS.match(text) is not None for text in (path, unquote(path)))


def without_addresses(body: bytes) -> bytes:
    """A call without the addresses from which files are shown, which nobody needs.

    Raises:
        ExternalAddressError: A file, or another value, is given as an address.
    """
    try:
        call = json.loads(body or b"null")
    except ValueError:
        return body  # gradio refuses it
    except RecursionError as error:  # nobody nests a file name this deep for a good reason
        raise ExternalAddressError from error
    return json.dumps(_checked(call)).encode() if body else body


def _checked(value: Any) -> Any:
    if isinstance(value, dict):
        if isinstance(path := value.get("path"), str) and is_address(path):
            raise ExternalAddressError
        # The page repeats under which address of this server it shows a file.
        return {name: _checked(item) for name, item in value.items() if name != "url"}
    if isinstance(value, list):
        return [_checked(item) for item in value]
    if isinstance(value, str) and _WEB_ADDRESS.match(value):
        raise ExternalAddressError
    return value
