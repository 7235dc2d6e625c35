"""looks.py SECONDS: prints the cluster's status, a JSON object a line, so often; ends with its
standard input."""
import json
import os
import select
import sys

import rados

cluster = rados.Rados(conffile=os.environ["CEPH_CONF"])
cluster.connect()
while True:
    r, out, err = cluster.mon_command(json.dumps({"prefix": "status", "format": "json"}), b"")
    if r:
        sys.exit("status: %d %s" % (r, err))
    print(json.dumps(json.loads(out)), flush=True)
    if select.select([sys.stdin], [], [], float(sys.argv[1]))[0]:
        break
# How librados takes itself down is nobody's matter here.
os._exit(0)
