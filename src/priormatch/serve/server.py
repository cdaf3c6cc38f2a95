"""Serve the page until it is stopped."""

import os
import signal
import socket
import threading
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from priormatch.errors import UserError
from priormatch.progress import say
from priormatch.serve.beams import Transcriber

MEGABYTE = 1 << 20
STYLE, SCRIPT = (Path(__file__).parent / name for name in ("style.css", "page.js"))


def require_gradio() -> None:
    """Raise `UserError` if Gradio, which the page needs, is not installed."""
    if find_spec("gradio") is None:
        raise UserError("the page needs gradio: install it with pip install 'priormatch[page]'")


def require_free(host: str, port: int) -> None:
    """Raise `UserError` if the address cannot be used."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise UserError(
            f"cannot listen on {host}, port {port} ({error.strerror}): use another --port, or another --host"
        ) from error


def serve(transcriber: Transcriber, head: str, host: str, port: int, most_megabytes: int) -> None:
    """Serve the page until Ctrl-C; users' recordings and uploads are deleted then, or earlier."""
    with TemporaryDirectory(prefix="priormatch-") as folder:
        os.environ["GRADIO_TEMP_DIR"] = folder
        os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
        os.environ["no_proxy"] = "*"  # Gradio sends a request to itself when it starts
        from priormatch.serve.page import make_page

        page = make_page(transcriber, head)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            page.launch(
                server_name=f"[{host}]" if ":" in host else host,
                server_port=port,
                max_file_size=most_megabytes * MEGABYTE,
                css_paths=STYLE,
                js=SCRIPT.read_text(encoding="utf-8"),
                prevent_thread_lock=True,
                quiet=True,
                share=False,
                ssr_mode=False,
                pwa=False,
                run_history=False,
                enable_monitoring=False,
                footer_links=[],
            )
            say(f"the page is at {page.local_url} (Ctrl-C stops it)")
            threading.Event().wait()
        except KeyboardInterrupt:
            say("the page is closed, and all uploads are deleted")
        finally:
            page.close(verbose=False)
            transcriber.close()
