"""Rollouts on disk and what becomes of them."""

import os

# Arrow's allocator gives memory back to the system at once, only to get it again for the next stage, page by page: a tenth of the
# time of a large verdict. It reads this when pyarrow is loaded: milliseconds that freed memory is kept.
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "10000")
