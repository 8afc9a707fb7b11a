"""What every page is made of: templates that escape, and data and plotly.js packed into the page."""

from __future__ import annotations

import base64
import gzip

import jinja2
from plotly.offline import get_plotlyjs


def templates(*packages: str) -> jinja2.Environment:
    """The templates of all pages; an undefined name is an error, text is escaped.

    Args:
        packages: have further templates, which come first.
    """
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(name) for name in (*packages, "opsmith.report")]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def packed(data: bytes) -> str:
    """Data as a page holds it: gzip in base64. Equal data gives equal text."""
    return base64.b64encode(gzip.compress(data, compresslevel=9, mtime=0)).decode("ascii")


def packed_plotly() -> str:
    """plotly.js, packed."""
    return packed(get_plotlyjs().encode())
