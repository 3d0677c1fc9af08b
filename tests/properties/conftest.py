"""How long Hypothesis may take: as long as it needs, for a busy machine is no failure."""

from hypothesis import settings

settings.register_profile("stellwerk", deadline=None)
settings.load_profile("stellwerk")
