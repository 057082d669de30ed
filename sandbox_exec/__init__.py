"""Run untrusted, timed scripts: contained, and measured to the millisecond."""
