"""Texts of kernels' files, each kept once, and the files that a review covers besides that of the entry."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, insert, select

from opsmith.serve.store.database import Database
from opsmith.serve.store.schema import covered_files, sources


def keep_sources(connection: Connection, texts: Iterable[str]) -> list[str]:
    """Keep texts that are not there yet; the names of all, in their order."""
    named = [(hashlib.sha256(text.encode()).hexdigest(), text) for text in texts]
    new = dict(named)
    for known in connection.execute(select(sources.c.hash).where(sources.c.hash.in_(list(new)))).scalars():
        del new[known]
    if new:
        connection.execute(insert(sources), [{"hash": name, "text": text} for name, text in new.items()])
    return [name for name, _ in named]


def keep_covered(connection: Connection, content_hash: str, texts: Mapping[str, str]) -> None:
    """Keep the files that a review of some content covers besides the entry's: path -> text."""
    known = select(covered_files.c.path).where(covered_files.c.content_hash == content_hash).limit(1)
    if texts and connection.execute(known).first() is None:
        names = keep_sources(connection, texts.values())
        rows = [
            {"content_hash": content_hash, "path": path, "source_hash": name}
            for path, name in zip(texts, names, strict=True)
        ]
        connection.execute(insert(covered_files), rows)


def covered_texts(database: Database, content_hash: str) -> dict[str, str]:
    """What :func:`keep_covered` kept, in the order of the paths; empty where the entry's file is all."""
    wanted = (
        select(covered_files.c.path, sources.c.text)
        .join(sources, sources.c.hash == covered_files.c.source_hash)
        .where(covered_files.c.content_hash == content_hash)
    )
    with database.reading() as connection:
        return dict(sorted((row.path, row.text) for row in connection.execute(wanted)))
