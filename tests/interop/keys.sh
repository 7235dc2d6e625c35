# Tickets and service keys that live for seconds, keys that are wiped and taken away, under clients
# that are at work. Env: SUITE, MODE.
python3 ./keys.py
