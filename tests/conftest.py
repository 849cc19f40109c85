import os

import pytest

os.environ.setdefault("GRAPHSCOPE_DEBUG", "1")  # no failure of graphscope's own stays unseen


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew; read the difference")
