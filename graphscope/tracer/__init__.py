"""Where torch is met: graphs are walked, programs are watched, and all becomes a Trace."""
