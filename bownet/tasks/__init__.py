"""What a training run optimises: each task turns a batch into a loss and a few metrics."""
