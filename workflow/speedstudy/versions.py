"""Versions of the stages, raised by hand when a stage's results would change.

They are part of every hash downstream. A test keeps the fingerprint of each stage's code and fails
until the author either raises the version or records that the change has no effect on results.
"""

FETCH_VERSION = 1
COLLECT_VERSION = 1
EMBED_VERSION = 1
SELECT_VERSION = 2
BUCKET_VERSION = 2
CONVERT_VERSION = 2
TOKENIZE_VERSION = 1
MEASUREMENT_VERSION = 1
