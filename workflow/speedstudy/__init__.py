"""Measure speculative decoding on diverse real prompts and under real serving load."""
