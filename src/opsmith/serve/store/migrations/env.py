"""Alembic's way in: the connection comes from :meth:`opsmith.serve.store.database.Database.migrate`."""

from alembic import context

from opsmith.serve.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
context.run_migrations()
