"""Speed and memory, as ratios between contenders that are measured in one run."""
