"""The requests at the OSDs: of each its name and how to ask for it.

Each user has objects of its own in each place, which are there before it comes: `OBJECT` (16 bytes,
attribute `k`, omap key `k`), `OBJECT.gone`, `OBJECT.watched`. Requests of a list go out in its order,
none waits for the one before; what another user sees is not changed by any.
"""
import ctypes as C

from client import buffer, sizes, strings

OBJECT = []
"""Requests on an object: (name, function of place and object name)."""
WHOLE = []
"""Requests on a pool or namespace, which wait: (name, function of a `Scene`)."""
SPECIAL = []
"""Requests on objects of images: (name, function of place and user)."""
BYTES = b"0123456789abcdef"


def request(table, name=None):
    def take(function):
        table.append((name or function.__name__.replace("_", "-"), function))
        return function

    return take


def read_step(size=16):
    buf = C.create_string_buffer(size)
    return ("read", C.c_uint64(0), SIZE(size), buf, C.byref(SIZE()), C.byref(C.c_int()))


SIZE = C.c_size_t


def call_r(cls, method, data=b""):
    out = C.create_string_buffer(4096)
    return ("exec_user_buf", cls, method, *buffer(data), out, SIZE(4096), C.byref(SIZE()), None)


def call_w(cls, method, data=b""):
    return ("exec", cls, method, *buffer(data), None)


@request(OBJECT)
def read(p, o):
    return p.read_op(o, read_step())


@request(OBJECT)
def stat(p, o):
    return p.read_op(o, ("stat", C.byref(C.c_uint64()), C.byref(C.c_long()), None))


@request(OBJECT)
def exists(p, o):
    return p.read_op(o, ("assert_exists",), ("stat", None, None, None))


@request(OBJECT)
def checksum(p, o):
    out = C.create_string_buffer(64)
    return p.read_op(
        o, ("checksum", C.c_int(2), *buffer(b"\0\0\0\0"), C.c_uint64(0), SIZE(16), SIZE(0), out, SIZE(64), None)
    )


@request(OBJECT)
def getxattr(p, o):
    return p.get_xattr(o, b"k")


@request(OBJECT)
def getxattrs(p, o):
    return p.read_op(o, ("getxattrs", C.byref(C.c_void_p()), C.byref(C.c_int())))


@request(OBJECT)
def cmpxattr(p, o):
    return p.read_op(o, ("cmpxattr", b"k", C.c_uint8(1), *buffer(b"v")))


@request(OBJECT)
def omap_keys(p, o):
    return p.read_op(
        o, ("omap_get_keys2", b"", C.c_uint64(9), C.byref(C.c_void_p()), C.byref(C.c_ubyte()), C.byref(C.c_int()))
    )


@request(OBJECT)
def omap_vals(p, o):
    return p.read_op(
        o, ("omap_get_vals2", b"", b"", C.c_uint64(9), C.byref(C.c_void_p()), C.byref(C.c_ubyte()), C.byref(C.c_int()))
    )


@request(OBJECT)
def omap_by_key(p, o):
    return p.read_op(
        o,
        ("omap_get_vals_by_keys2", strings(b"k"), SIZE(1), sizes(b"k"), C.byref(C.c_void_p()), C.byref(C.c_int())),
    )


@request(OBJECT)
def omap_cmp(p, o):
    return p.read_op(
        o, ("omap_cmp2", b"k", C.c_uint8(1), b"v", SIZE(1), SIZE(1), C.byref(C.c_int()))
    )


@request(OBJECT)
def cmpext(p, o):
    return p.read_op(o, ("cmpext", *buffer(BYTES), C.c_uint64(0), C.byref(C.c_int())))


@request(OBJECT)
def call_read(p, o):
    return p.read_op(o, call_r(b"hello", b"say_hello"))


@request(OBJECT)
def call_read_twice(p, o):
    return p.read_op(o, call_r(b"hello", b"say_hello"), call_r(b"lock", b"get_info"))


@request(OBJECT)
def call_and_read(p, o):
    return p.read_op(o, call_r(b"hello", b"say_hello"), read_step())


@request(OBJECT)
def call_lock_info(p, o):
    return p.read_op(o, call_r(b"lock", b"get_info"))


@request(OBJECT)
def call_unlisted(p, o):
    return p.read_op(o, call_r(b"sdk", b"test_coverage_read"))


@request(OBJECT)
def call_no_class(p, o):
    return p.read_op(o, call_r(b"nosuch", b"say_hello"))


@request(OBJECT)
def call_no_method(p, o):
    return p.read_op(o, call_r(b"hello", b"nosuch"))


@request(OBJECT)
def call_writing_in_read(p, o):
    return p.read_op(o, call_r(b"hello", b"record_hello"))


@request(OBJECT)
def notify(p, o):
    return p.notify(o)


@request(OBJECT)
def call_write(p, o):
    return p.write_op(o, call_w(b"hello", b"record_hello"))


@request(OBJECT)
def call_reading_in_write(p, o):
    return p.write_op(o, call_w(b"hello", b"say_hello"))


@request(OBJECT)
def call_no_class_w(p, o):
    return p.write_op(o, call_w(b"nosuch", b"say_hello"))


@request(OBJECT)
def call_no_method_w(p, o):
    return p.write_op(o, call_w(b"hello", b"nosuch"))


@request(OBJECT)
def call_lock(p, o):
    return p.write_op(o, call_w(b"lock", b"lock"))


@request(OBJECT)
def call_and_write(p, o):
    return p.write_op(o, call_w(b"hello", b"say_hello"), ("write", *buffer(b"0"), C.c_uint64(0)))


@request(OBJECT)
def cmpext_in_write(p, o):
    return p.write_op(o, ("cmpext", *buffer(BYTES), C.c_uint64(0), C.byref(C.c_int())))


@request(OBJECT)
def cmpext_and_write(p, o):
    return p.write_op(
        o, ("cmpext", *buffer(b"0"), C.c_uint64(0), C.byref(C.c_int())), ("write", *buffer(b"0"), C.c_uint64(0))
    )


@request(OBJECT)
def cmpxattr_and_write(p, o):
    return p.write_op(o, ("cmpxattr", b"k", C.c_uint8(1), *buffer(b"v")), ("write", *buffer(b"0"), C.c_uint64(0)))


@request(OBJECT)
def exists_and_write(p, o):
    return p.write_op(o, ("assert_exists",), ("write", *buffer(b"0"), C.c_uint64(0)))


@request(OBJECT)
def write(p, o):
    return p.write_op(o, ("write", *buffer(b"0"), C.c_uint64(0)))


@request(OBJECT)
def writefull(p, o):
    return p.write_op(o, ("write_full", *buffer(BYTES)))


@request(OBJECT)
def writesame(p, o):
    return p.write_op(o, ("writesame", *buffer(b"01"), SIZE(4), C.c_uint64(0)))


@request(OBJECT)
def append(p, o):
    return p.write_op(o, ("append", *buffer(b"!")))


@request(OBJECT)
def truncate(p, o):
    return p.write_op(o, ("truncate", C.c_uint64(16)))


@request(OBJECT)
def zero(p, o):
    return p.write_op(o, ("zero", C.c_uint64(8), C.c_uint64(4)))


@request(OBJECT)
def create(p, o):
    return p.write_op(o + b".new", ("create", C.c_int(0), None))


@request(OBJECT)
def create_exclusive(p, o):
    return p.write_op(o, ("create", C.c_int(1), None))


@request(OBJECT)
def alloc_hint(p, o):
    return p.write_op(o, ("set_alloc_hint", C.c_uint64(4096), C.c_uint64(4096)))


@request(OBJECT)
def setxattr(p, o):
    return p.write_op(o, ("setxattr", b"k2", *buffer(b"v")))


@request(OBJECT)
def rmxattr(p, o):
    return p.write_op(o, ("rmxattr", b"k2"))


@request(OBJECT)
def omap_set(p, o):
    return p.write_op(o, ("omap_set", strings(b"k"), strings(b"v"), sizes(b"v"), SIZE(1)))


@request(OBJECT)
def omap_rm(p, o):
    return p.write_op(o, ("omap_rm_keys", strings(b"k"), SIZE(1)))


@request(OBJECT)
def omap_clear(p, o):
    return p.write_op(o, ("omap_clear",))


@request(OBJECT)
def watch(p, o):
    return p.watch(o + b".watched")


@request(OBJECT)
def remove(p, o):
    return p.write_op(o + b".gone", ("remove",))


@request(OBJECT)
def empty(p, o):
    return p.read_op(o)


# Of what spans places: `s.place(pool, namespace)`, `s.object`.


@request(WHOLE, "list")
def list_one(s, pool):
    return s.place(pool, b"").list()


@request(WHOLE, "list-ns1")
def list_ns1(s, pool):
    return s.place(pool, b"ns1").list()


@request(WHOLE, "list-all")
def list_all(s, pool):
    return s.place(pool, b"\x01").list()


@request(WHOLE)
def copy_own(s, pool):
    p = s.place(pool, b"")
    return p.copy_from(s.own + b".copy", p, s.own)


@request(WHOLE)
def copy_other_object(s, pool):
    p = s.place(pool, b"")
    return p.copy_from(s.own + b".copy", p, b"bar.secret")


@request(WHOLE)
def copy_from_ns1(s, pool):
    return s.place(pool, b"").copy_from(s.own + b".copy", s.place(pool, b"ns1"), b"foo.secret")


@request(WHOLE)
def copy_from_other_pool(s, pool):
    other = "b" if pool == "a" else "a"
    return s.place(pool, b"").copy_from(s.own + b".copy", s.place(other, b""), b"foo.secret")


@request(WHOLE)
def snap_create(s, pool):
    return s.place(pool, b"").snap_create()


@request(WHOLE)
def snap_remove(s, pool):
    return s.place(pool, b"").snap_remove(1 << 40)


@request(WHOLE)
def pool_snap(s, pool):
    return s.place("c", b"").pool_snap(s.own)


def special(name, obj, *steps, write=False):
    """Of an object of images; `$U` in its name is the user's own."""

    def ask(p, user):
        o = obj.replace(b"$U", user)
        return (p.write_op if write else p.read_op)(o, *(step() for step in steps))

    SPECIAL.append((name, ask))


def of(step, *args):
    return lambda: step(*args)


WRITE = lambda: ("setxattr", b"k", *buffer(b"v"))  # noqa: E731
for name in (b"rbd_info", b"rbd_children", b"rbd_mirroring", b"rbd_directory", b"rbd_header.$U", b"rbd_data.$U"):
    short = name.decode().replace("rbd_", "").replace(".$U", "")
    special("read-" + short, name, read_step)
    special("write-" + short, name, WRITE, write=True)
for short, name, method, writes in (
    ("info", b"rbd_info", b"metadata_list", False),
    ("info", b"rbd_info", b"metadata_get", False),
    ("info", b"rbd_info", b"metadata_set", True),
    ("children", b"rbd_children", b"get_children", False),
    ("children", b"rbd_children", b"add_child", True),
    ("mirroring", b"rbd_mirroring", b"mirror_mode_get", False),
    ("mirroring", b"rbd_mirroring", b"mirror_mode_set", True),
    ("directory", b"rbd_directory", b"dir_list", False),
    ("directory", b"rbd_directory", b"dir_add_image", True),
    ("header", b"rbd_header.$U", b"get_size", False),
    ("header", b"rbd_header.$U", b"set_size", True),
    ("header", b"rbd_header.$U", b"child_attach", True),
    ("header", b"rbd_header.$U", b"child_detach", True),
    ("header", b"rbd_header.$U", b"children_list", False),
    ("header", b"rbd_header.$U", b"metadata_list", False),
):
    special(
        f"{method.decode()}-{short}", name, of(call_w if writes else call_r, b"rbd", method), write=writes
    )
SPECIAL_OBJECTS = (b"rbd_info", b"rbd_children", b"rbd_mirroring", b"rbd_directory")
