# Upstream's Python binding. Env: SUITE, MODE.
python3 librados.py "py-$SUITE-$MODE"
