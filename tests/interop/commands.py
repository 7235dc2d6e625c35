"""commands.py: each line of standard input is a command for the monitors, a JSON object; for each
it prints the answer in a line, all over one connection. The end of the input is its end."""
import json
import os
import sys

import rados

cluster = rados.Rados(conffile=os.environ["CEPH_CONF"])
cluster.connect()
for line in iter(sys.stdin.readline, ""):
    r, out, err = cluster.mon_command(line, b"")
    if r:
        sys.exit("%s: %d %s" % (line, r, err))
    print(json.dumps(json.loads(out or "null")), flush=True)
# How librados takes itself down is nobody's matter here.
os._exit(0)
