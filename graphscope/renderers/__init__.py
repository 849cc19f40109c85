"""Each public file here is one format, with ``render(report) -> str`` (bytes for png and pdf)."""
