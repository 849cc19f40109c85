"""Two networks in a row, two losses, two backward calls.

``denoiser`` cleans a signal, ``classifier`` says what it shows, and each has its own loss and optimizer. Both
losses hang on the one call of ``denoiser``. The first backward frees what its nodes had saved; the second one
arrives at them again, and torch raises "Trying to backward through the graph a second time". graphscope names
the call that freed the graph, the call that needs it, and the shared nodes in between.

Expected: GS101
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

torch.manual_seed(0)
time = torch.linspace(0, 6.28, 32)
labels = torch.randint(3, (64,))
clean = torch.sin((labels + 1).unsqueeze(1) * time)
noisy = clean + 0.3 * torch.randn(64, 32)

denoiser = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
classifier = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
denoiser_optimizer = torch.optim.Adam(denoiser.parameters(), lr=1e-3)
classifier_optimizer = torch.optim.Adam(classifier.parameters(), lr=1e-3)

for epoch in range(3):
    denoised = denoiser(noisy)
    logits = classifier(denoised)
    denoising_loss = mse_loss(denoised, clean)
    classification_loss = cross_entropy(logits, labels)
    print(f"epoch {epoch}: denoising {denoising_loss.item():.3f}, classification {classification_loss.item():.3f}")

    denoiser_optimizer.zero_grad()
    classifier_optimizer.zero_grad()
    denoising_loss.backward()  # GS101
    classification_loss.backward()  # GS101
    denoiser_optimizer.step()
    classifier_optimizer.step()
