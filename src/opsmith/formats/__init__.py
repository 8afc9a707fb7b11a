"""Tasks and solutions in the formats of other tools, read as module problems and as ``ModelNew``.

A task becomes a problem file in the cache (:mod:`opsmith.core.problems`), with an
:class:`~opsmith.formats.origin.Origin` beside it; everything that is done with module problems is then done with it.
A solution becomes a folder whose ``ModelNew`` calls it. Files are read as data: what they hold runs in referees and
workers only.

A further format is a module with the functions of :class:`~opsmith.formats.readers.Reader` and a line in
:data:`~opsmith.formats.readers.READERS`.
"""
