"""The schema of a study: every key that ``config/`` may hold, its meaning and its bounds.

The models forbid unknown keys and are frozen. Fields marked ``scope=run`` say how a thing is run,
estimated or drawn and never change a measurement, so they stay out of a cell's hash. This package
imports nothing of ours but itself.
"""
