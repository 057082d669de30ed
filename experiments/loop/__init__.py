"""The training loop of the MLE-Bench experiment, without any policy of its own."""
