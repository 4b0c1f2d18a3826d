"""How the tests are run: the same examples every time. `make bench` and the fuzzer look for new ones."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("repeatable")
