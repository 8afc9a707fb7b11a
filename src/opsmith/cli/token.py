"""``opsmith token``: who may use a server."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from opsmith.cli.document import Json, print_json
from opsmith.cli.serve import DATA, Data, Db, database_url
from opsmith.errors import MissingDependency

if TYPE_CHECKING:
    from opsmith.serve.store.database import Database

HELP = "Make, list and revoke the tokens of `opsmith serve`."

CREATE_EPILOG = """
Examples:

  opsmith token create ci --role submitter --kernels-a-day 5000

  opsmith token create mara --role reviewer

  opsmith token create wall --role reader --db postgresql://opsmith@db/opsmith
"""

LIST_EPILOG = """
Examples:

  opsmith token list

  opsmith token list --json
"""

REVOKE_EPILOG = """
Examples:

  opsmith token revoke ci
"""


def create(
    name: Annotated[str, typer.Argument(help="Whom the token is for; it names their runs.", show_default=False)],
    role: Annotated[
        Literal["reader", "submitter", "reviewer", "admin"],
        typer.Option(
            help="reader looks; submitter also submits; reviewer also reviews; admin does all and makes tokens."
        ),
    ] = "submitter",
    kernels_a_day: Annotated[
        int | None, typer.Option(min=0, help="Kernels that it may submit in 24 hours.", show_default="any number")
    ] = None,
    data: Data = DATA,
    db: Db = None,
    json_output: Json = False,
) -> int:
    """Make a token and print its secret, which is kept nowhere."""
    with _database(data, db) as database:
        from opsmith.serve.store.tokens import Role, create_token

        token, secret = create_token(database, name, Role(role), kernels_a_day=kernels_a_day)
    if json_output:
        print_json(msgspec.to_builtins(token) | {"secret": secret})
    else:
        sys.stdout.write(f"{secret}\n")
    return 0


def list_(data: Data = DATA, db: Db = None, json_output: Json = False) -> int:
    """Show every token, revoked ones too, without its secret."""
    with _database(data, db) as database:
        from opsmith.serve.store.tokens import list_tokens

        tokens = list_tokens(database)
    if json_output:
        print_json(msgspec.to_builtins(tokens))
        return 0
    table = Table("name", "role", "kernels a day", "made", "revoked", box=None)
    for token in tokens:
        quota = "any" if token.kernels_a_day is None else f"{token.kernels_a_day:,}"
        table.add_row(token.name, token.role, quota, token.created_utc[:16], (token.revoked_utc or "")[:16])
    Console().print(table)
    return 0


def revoke(
    name: Annotated[str, typer.Argument(help="Whose token.", show_default=False)], data: Data = DATA, db: Db = None
) -> int:
    """Make a token void at once; what was submitted with it stays."""
    with _database(data, db) as database:
        from opsmith.serve.store.tokens import revoke_token

        revoke_token(database, name)
    return 0


COMMANDS = ((create, CREATE_EPILOG), (list_, LIST_EPILOG), (revoke, REVOKE_EPILOG))


@contextlib.contextmanager
def _database(data: Data, db: Db) -> Iterator[Database]:
    try:
        from opsmith.serve.store.database import Database
    except ModuleNotFoundError as exc:
        raise MissingDependency(exc.name or "sqlalchemy", extra="serve") from exc
    if db is None:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.closing(Database(database_url(data, db))) as database:
        database.migrate()
        yield database
