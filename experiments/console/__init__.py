"""What a person sees while a run is at work: first screen, live table, signals."""
