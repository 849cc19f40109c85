"""A watched program needs no more memory than a bare one, beyond what the recorder itself takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(*[layer for _ in range(10) for layer in (nn.Linear(512, 512), nn.Tanh())])
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(12):  # about 80 MB of saved activations in each
    loss = net(torch.randn(4096, 512)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
with open("/proc/self/status") as status:
    peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
with open(sys.argv[1], "w") as out:
    out.write(peak)
"""


def peak(folder: Path, *command: str) -> float:
    """The program's highest resident size, in MB."""
    script, out = folder / "program.py", folder / "peak"
    script.write_text(PROGRAM)
    subprocess.run([sys.executable, *command, str(script), str(out)], check=True, capture_output=True)
    return int(out.read_text()) / 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_buffer_lives_longer_than_in_the_bare_program(tmp_path: Path) -> None:
    bare = peak(tmp_path)
    watched = peak(tmp_path, "-m", "graphscope", "inspect")
    # The recorder takes some 40 MB; activations kept too long, or a fragmented heap, would be some 900 MB by the end.
    assert watched <= bare + 150
