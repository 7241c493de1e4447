"""One thread per test process: the tensors are small, and other work may share the machine."""

import torch

torch.set_num_threads(1)
