"""What mkdocs is told of these pages: their order is that of index.md, and links may leave the documentation.

Links to other files of the repository lead there where the site's configuration has a ``repo_url``; else their text
stays. Images of other folders come with the site.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
_ENTRY = re.compile(r"^- \[([^\]]+)\]\(([^)#]+\.md)\)")
_OUTSIDE = re.compile(r"(!?)\[([^\]]*)\]\(((?:\.\./)+[^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Make the navigation of what index.md lists; a page for each family of kernels follows their overview."""
    section: list[Any] = [{"Start": ["index.md", {"First run": "tutorial/first-run.md"}, {"Glossary": "glossary.md"}]}]
    nav = section
    part = nav
    for line in (DOCS / "index.md").read_text(encoding="utf-8").splitlines():
        entry = _ENTRY.match(line)
        if line.startswith("## "):
            section = []
            nav.append({line[3:]: section})
            part = section
        elif re.fullmatch(r"[A-Z][^.]*:", line) and section is not nav:
            part = []
            section.append({line[:-1]: part})
        elif entry and not entry[2].startswith("../"):
            part.append({entry[1].replace("`", ""): entry[2]})
            if entry[2] == "kernels/index.md":
                pages = sorted(set((DOCS / "kernels").glob("*.md")) - {DOCS / entry[2]})
                part += [{_title(page): f"kernels/{page.name}"} for page in pages]
    config.nav = [each for each in nav if not isinstance(each, dict) or all(each.values())]
    return config


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Replace what leaves the documentation.

    Raises:
        FileNotFoundError: a link leads nowhere.
    """
    folder = Path(page.file.abs_src_path).parent

    def replaced(found: re.Match[str]) -> str:
        image, text, target, _ = found.groups()
        path = (folder / target).resolve()
        if path.is_relative_to(DOCS):
            return found.group()
        if not path.exists():
            raise FileNotFoundError(f"{page.file.src_uri} links to {target}, which is not there")
        if image:
            made = File.generated(config, f"images/elsewhere/{path.name}", abs_src_path=str(path))
            files.append(made)
            return f"![{text}]({os.path.relpath(DOCS / made.src_uri, folder)})"
        return (
            f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{path.relative_to(ROOT)})" if config.repo_url else text
        )

    return _OUTSIDE.sub(replaced, markdown)
