"""From settings to finished runs: parts, tasks, arms, seeds, the final test."""
