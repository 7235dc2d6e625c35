# Upstream's Python binding. Env: SUITE, MODE.
python3 librados.py "py-$SUITE-$MODE"
# One that was away for a while.
python3 behind.py "behind-$SUITE-$MODE"
