"""parity.py: one cluster, asked over one connection. Each line of standard input is a request, a
JSON object; each gets a line of JSON. The end of the input is its end.

  {"run": [WORDS]}                      a command as typed behind `ceph`: {code, out, err}
  {"run": [WORDS], "input": BASE64}     the same with a file on its input; out is BASE64 with "raw"
  {"write": POOL, "names": [..], "text": T}   objects made of T, by name: {NAME: errno}
  {"remove": POOL, "names": [..]}       {NAME: errno}
  {"objects": POOL, "snaps": [ID, ..]}  sums of all objects, and as they were in snapshots
"""
import base64
import hashlib
import json
import os
import sys

import ceph_argparse
import rados

MGR = 8
WAIT = "20"
cluster = rados.Rados(
    conffile=os.environ["CEPH_CONF"],
    conf={"rados_osd_op_timeout": WAIT, "rados_mon_op_timeout": WAIT})
cluster.connect()
_, out, _ = cluster.mon_command('{"prefix": "get_command_descriptions"}', b"")
SIGS = ceph_argparse.parse_json_funcsigs(out.decode(), "cli")
FLAGS = {" ".join(word for word in row["sig"] if isinstance(word, str)): row.get("flags", 0)
         for row in json.loads(out).values()}


def run(request):
    args = ceph_argparse.validate_command(SIGS, request["run"])
    if not args:
        return {"code": 22, "out": "", "err": "invalid command"}
    args.pop("target", None)
    args.setdefault("format", "json")
    data = base64.b64decode(request.get("input", ""))
    ask = cluster.mgr_command if FLAGS.get(args["prefix"], 0) & MGR else cluster.mon_command
    code, out, err = ask(json.dumps(args), data)
    out = base64.b64encode(out).decode() if request.get("raw") else out.decode()
    return {"code": -code, "out": out, "err": err}


def number(call, *args):
    try:
        call(*args)
        return 0
    except rados.Error as e:
        return abs(e.errno or 0)


def objects(request):
    with cluster.open_ioctx(request["objects"]) as pool:
        answer = {}
        names = sorted(o.key for o in pool.list_objects())
        for snap in [None] + request.get("snaps", []):
            pool.set_read(rados.LIBRADOS_SNAP_HEAD if snap is None else snap)
            for name in names:
                try:
                    said = hashlib.md5(pool.read(name, 1 << 22)).hexdigest()
                except rados.Error as e:
                    said = "errno %d" % abs(e.errno)
                answer[name if snap is None else "%s@%d" % (name, snap)] = said
        return answer


def answer(request):
    if "run" in request:
        return run(request)
    if "objects" in request:
        return objects(request)
    if "write" in request:
        with cluster.open_ioctx(request["write"]) as pool:
            return {n: number(pool.write_full, n, (request["text"] + n).encode() * 500)
                    for n in request["names"]}
    with cluster.open_ioctx(request["remove"]) as pool:
        return {n: number(pool.remove_object, n) for n in request["names"]}


for line in iter(sys.stdin.readline, ""):
    try:
        said = answer(json.loads(line))
    except Exception as e:  # whatever it is, the other side is to know
        said = {"failed": repr(e)}
    print(json.dumps(said), flush=True)
os._exit(0)
