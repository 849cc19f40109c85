"""A GAN step as it should be: the discriminator sees detached fake samples.

``fake.detach()`` ends the discriminator's backward at the samples. The generator's loss uses the live ones
and passes through the discriminator, whose gradients from that are cleared before its next step. torch runs
it, and graphscope has nothing to say.

Expected: nothing
"""

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
discriminator = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
discriminator_optimizer = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.999))
is_real, is_fake = torch.ones(64, 1), torch.zeros(64, 1)

for step in range(4):
    real = torch.randn(64, 2) * 0.5 + 2
    fake = generator(torch.randn(64, 4))

    discriminator_optimizer.zero_grad()
    real_loss = binary_cross_entropy_with_logits(discriminator(real), is_real)
    fake_loss = binary_cross_entropy_with_logits(discriminator(fake.detach()), is_fake)
    (real_loss + fake_loss).backward()
    discriminator_optimizer.step()

    generator_optimizer.zero_grad()
    generator_loss = binary_cross_entropy_with_logits(discriminator(fake), is_real)
    generator_loss.backward()
    generator_optimizer.step()
    print(f"step {step}: real {real_loss.item():.3f}, fake {fake_loss.item():.3f}, fooled {generator_loss.item():.3f}")
