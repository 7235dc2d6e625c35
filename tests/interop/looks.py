"""looks.py SECONDS: prints the cluster's status, a JSON object a line, so often. A line on its
standard input is a command for the monitors, a JSON object, sent at once over the same connection;
the end of it is the end."""
import json
import os
import select
import sys

import rados


def ask(cluster, command):
    r, out, err = cluster.mon_command(command, b"")
    if r:
        sys.exit("%s: %d %s" % (command, r, err))
    return out


cluster = rados.Rados(conffile=os.environ["CEPH_CONF"])
cluster.connect()
while True:
    status = ask(cluster, json.dumps({"prefix": "status", "format": "json"}))
    print(json.dumps(json.loads(status)), flush=True)
    if select.select([sys.stdin], [], [], float(sys.argv[1]))[0]:
        line = sys.stdin.readline()
        if not line:
            break
        ask(cluster, line)
# How librados takes itself down is nobody's matter here.
os._exit(0)
