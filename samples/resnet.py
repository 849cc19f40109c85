"""A small ResNet that tells stripes from checks and rings.

Residual blocks with batch normalisation, in-place ReLUs where they are safe (what ``batch_norm`` and ``+``
saved is not what the ReLU overwrites), shortcuts with and without a projection, weight decay on the weights
only, a warm-up schedule and an evaluation under ``no_grad``. torch runs it, and graphscope has nothing to
say.

Expected: nothing
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        return self.relu(out + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, classes: int, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        self.blocks = nn.Sequential(
            Block(width, width), Block(width, 2 * width, stride=2), Block(2 * width, 4 * width, stride=2)
        )
        self.head = nn.Linear(4 * width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        features = self.blocks(self.stem(images))
        return self.head(features.mean(dim=(2, 3)))


def patterns(count: int) -> tuple[Tensor, Tensor]:
    """Noisy images of stripes, checks and rings, with their labels."""
    y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    phase = torch.rand(count, 1, 1) * 6.28
    stripes = torch.sin(x + phase)
    checks = torch.sin(x + phase) * torch.sin(y + phase)
    rings = torch.sin(((x - 8) ** 2 + (y - 8) ** 2).sqrt() + phase)
    labels = torch.randint(3, (count,))
    images = torch.stack([stripes, checks, rings], dim=1)[torch.arange(count), labels]
    return (images + 0.3 * torch.randn(count, 16, 16)).unsqueeze(1), labels


torch.manual_seed(0)
images, labels = patterns(256)
test_images, test_labels = patterns(128)
model = ResNet(classes=3)
weights = [parameter for parameter in model.parameters() if parameter.ndim > 1]
others = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
optimizer = torch.optim.SGD(
    [{"params": weights, "weight_decay": 5e-4}, {"params": others}], lr=0.1, momentum=0.9, nesterov=True
)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=3 * 4)

for epoch in range(3):
    model.train()
    seen, right = 0, 0
    for batch in torch.randperm(len(images)).split(64):
        logits = model(images[batch])
        loss = cross_entropy(logits, labels[batch], label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        right += (logits.argmax(dim=1) == labels[batch]).sum().item()
        seen += len(batch)

    model.eval()
    with torch.no_grad():
        accuracy = (model(test_images).argmax(dim=1) == test_labels).float().mean().item()
    print(f"epoch {epoch}: loss {loss.item():.3f}, train {right / seen:.2f}, test {accuracy:.2f}")
