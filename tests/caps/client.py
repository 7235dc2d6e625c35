"""A client of one entity over upstream's librados (its C interface), as the matrix needs it: many
requests under way at the same time, and of each only its errno.

The Python binding has no way to ask for most of these without waiting for each, and none at all for
COPY_FROM, which only the C++ interface has.
"""
import ctypes as C
import errno
import time

lib = C.CDLL("librados.so.2")
# An outcome beside 0 and the errnos: CMPEXT found other bytes (librados: -4095 - offset).
MISMATCH = 4095
# The entry that stands for "all namespaces" in listings.
ALL_NAMESPACES = b"\x01"

P = C.c_void_p
SIZE = C.c_size_t
for name in """rados_create_write_op rados_create_read_op""".split():
    getattr(lib, name).restype = P
WATCH_CB = C.CFUNCTYPE(None, P, C.c_uint64, C.c_uint64, C.c_uint64, P, SIZE)
WATCH_ERR = C.CFUNCTYPE(None, P, C.c_uint64, C.c_int)
_on_notify = WATCH_CB(lambda *_: None)
_on_error = WATCH_ERR(lambda *_: None)
_no_time = None


def plain(r):
    """A return value as an outcome: 0, or a positive errno."""
    if r >= 0:
        return 0
    return MISMATCH if r <= -MISMATCH else -r


class CxxString(C.Structure):
    """std::string of libstdc++ for at most 15 bytes, or longer ones that `text` keeps alive."""

    _fields_ = [("at", P), ("len", SIZE), ("small", C.c_char * 16)]

    def __init__(self, text):
        super().__init__()
        self.len = len(text)
        if len(text) < 16:
            C.memmove(C.addressof(self) + 16, text + b"\0", len(text) + 1)
            self.at = C.addressof(self) + 16
        else:
            self.keep = C.create_string_buffer(text)
            self.at = C.addressof(self.keep)


NS = "_ZN8librados7v14_2_0"
cxx_operation = getattr(lib, NS + "15ObjectOperationC2Ev")
cxx_operation_end = getattr(lib, NS + "15ObjectOperationD2Ev")
cxx_ioctx = getattr(lib, NS + "5IoCtx18from_rados_ioctx_tEPvRS1_")
cxx_ioctx_end = getattr(lib, NS + "5IoCtxD1Ev")
STRING = "RKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
cxx_copy_from = getattr(lib, NS + "20ObjectWriteOperation9copy_fromE" + STRING + "RKNS0_5IoCtxEmj")
cxx_operate = getattr(lib, NS + "5IoCtx7operateE" + STRING + "PNS0_20ObjectWriteOperationE")


class Refused(Exception):
    """A connection or a pool that cannot be had; `code` is the outcome."""

    def __init__(self, code):
        super().__init__(errno.errorcode.get(code, code))
        self.code = code


class Waiting:
    """A request under way."""

    def __init__(self, submit, keep=()):
        self.keep = keep
        self.c = P()
        lib.rados_aio_create_completion2(None, None, C.byref(self.c))
        self.r = submit(self.c)

    def wait(self):
        if self.r == 0:
            lib.rados_aio_wait_for_complete(self.c)
            self.r = lib.rados_aio_get_return_value(self.c)
        lib.rados_aio_release(self.c)
        self.keep = ()
        return plain(self.r)


class Done:
    """An outcome that is there at once."""

    def __init__(self, r):
        self.r = r

    def wait(self):
        return plain(self.r)


class Place:
    """A pool and a namespace."""

    def __init__(self, client, pool, nspace=b""):
        self.io = P()
        r = lib.rados_ioctx_create(client.cluster, pool.encode(), C.byref(self.io))
        if r < 0:
            raise Refused(-r)
        lib.rados_ioctx_set_namespace(self.io, nspace)

    def close(self):
        lib.rados_ioctx_destroy(self.io)

    def read_op(self, oid, *steps):
        """Each step is (name, argument..) of a `rados_read_op_NAME`."""
        op = P(lib.rados_create_read_op())
        for name, *args in steps:
            getattr(lib, "rados_read_op_" + name)(op, *args)
        w = Waiting(lambda c: lib.rados_aio_read_op_operate(op, self.io, c, oid, 0), steps)
        lib.rados_release_read_op(op)
        return w

    def write_op(self, oid, *steps):
        op = P(lib.rados_create_write_op())
        for name, *args in steps:
            getattr(lib, "rados_write_op_" + name)(op, *args)
        w = Waiting(
            lambda c: lib.rados_aio_write_op_operate(op, self.io, c, oid, _no_time, 0), steps
        )
        lib.rados_release_write_op(op)
        return w

    def get_xattr(self, oid, name):
        buf = C.create_string_buffer(64)
        return Waiting(
            lambda c: lib.rados_aio_getxattr(self.io, oid, c, name, buf, SIZE(64)), (buf,)
        )

    def notify(self, oid):
        out, size = P(), SIZE()
        return Waiting(
            lambda c: lib.rados_aio_notify(
                self.io, oid, c, b"", 0, C.c_uint64(3000), C.byref(out), C.byref(size)
            ),
            (out, size),
        )

    def watch(self, oid):
        """Watches, and no longer once the answer is there."""
        handle = C.c_uint64()
        w = Waiting(
            lambda c: lib.rados_aio_watch2(
                self.io, oid, c, C.byref(handle), _on_notify, _on_error, 30, None
            ),
            (handle,),
        )
        wait = w.wait

        def then():
            r = wait()
            if r == 0:
                Waiting(lambda c: lib.rados_aio_unwatch(self.io, handle, c)).wait()
            return r

        w.wait = then
        return w

    def list(self):
        """The first object of a listing."""
        at, entry = P(), C.c_char_p()
        r = lib.rados_nobjects_list_open(self.io, C.byref(at))
        if r == 0:
            r = lib.rados_nobjects_list_next(at, C.byref(entry), None, None)
            lib.rados_nobjects_list_close(at)
        # The end of the list is no error.
        return Done(0 if r == -errno.ENOENT else r)

    def copy_from(self, oid, source, source_oid):
        """COPY_FROM of the whole object from `source`, a place."""
        op = (C.c_char * 64)()
        here, there = (C.c_char * 16)(), (C.c_char * 16)()
        to, of = CxxString(oid), CxxString(source_oid)
        cxx_ioctx(self.io, here)
        cxx_ioctx(source.io, there)
        cxx_operation(op)
        cxx_copy_from(op, C.byref(of), there, C.c_uint64(0), C.c_uint32(0))
        r = cxx_operate(here, C.byref(to), op)
        cxx_operation_end(op)
        cxx_ioctx_end(here)
        cxx_ioctx_end(there)
        return Done(r)

    def snap_create(self):
        """A self-managed snapshot, and its removal."""
        snap = C.c_uint64()
        w = Waiting(
            lambda c: lib.rados_aio_ioctx_selfmanaged_snap_create(self.io, C.byref(snap), c),
            (snap,),
        )
        return w

    def snap_remove(self, snap):
        return Waiting(
            lambda c: lib.rados_aio_ioctx_selfmanaged_snap_remove(self.io, C.c_uint64(snap), c)
        )

    def pool_snap(self, name):
        r = lib.rados_ioctx_snap_create(self.io, name)
        if r == 0:
            lib.rados_ioctx_snap_remove(self.io, name)
        return Done(r)

    def pool_snap_remove(self, name):
        return Done(lib.rados_ioctx_snap_remove(self.io, name))


def buffer(text):
    return C.c_char_p(text), SIZE(len(text))


def strings(*texts):
    return (C.c_char_p * len(texts))(*texts)


def sizes(*texts):
    return (SIZE * len(texts))(*map(len, texts))


class Client:
    """A connection as `entity` with `key`.

    `timeout_s` bounds each request; `mount_timeout_s` the connection."""

    def __init__(self, conf, entity, key=None, timeout_s=10, options=()):
        self.cluster = P()
        lib.rados_create2(C.byref(self.cluster), b"ceph", entity.encode(), C.c_uint64(0))
        try:
            self.conf("client_mount_timeout", 10)
            r = lib.rados_conf_read_file(self.cluster, conf.encode())
            if r < 0:
                raise Refused(-r)
            # A user with a daemon's name is no daemon.
            self.conf("log_file", "/dev/null")
            self.conf("admin_socket", "")
            for option in ("rados_osd_op_timeout", "rados_mon_op_timeout"):
                self.conf(option, timeout_s)
            if key is not None:
                self.conf("keyring", "/dev/null")
                self.conf("key", key)
            for option, value in options:
                self.conf(option, value)
            r = lib.rados_connect(self.cluster)
            if r < 0:
                raise Refused(-r)
        except Refused:
            lib.rados_shutdown(self.cluster)
            raise

    def conf(self, option, value):
        lib.rados_conf_set(self.cluster, option.encode(), str(value).encode())

    def close(self, notified=False):
        """`notified`: it has asked for notifications. librados tells that one is answered a moment
        before it takes it off its lists, and crashes when it is shut down in between."""
        if notified:
            lib.rados_watch_flush(self.cluster)
            time.sleep(0.2)
        lib.rados_shutdown(self.cluster)

    def _command(self, function, *target, cmd, data=b""):
        text = strings(cmd.encode())
        out, out_len, status, status_len = P(), SIZE(), P(), SIZE()
        r = getattr(lib, function)(
            self.cluster, *target, text, SIZE(1), *buffer(data),
            C.byref(out), C.byref(out_len), C.byref(status), C.byref(status_len),
        )
        body = C.string_at(out, out_len.value) if out.value else b""
        said = C.string_at(status, status_len.value) if status.value else b""
        for at in (out, status):
            if at.value:
                lib.rados_buffer_free(at)
        return plain(r), body, said

    def mon(self, cmd, data=b""):
        return self._command("rados_mon_command", cmd=cmd, data=data)

    def tell_mon(self, cmd, data=b""):
        return self._command("rados_mon_command_target", b"a", cmd=cmd, data=data)

    def mgr(self, cmd, data=b""):
        return self._command("rados_mgr_command", cmd=cmd, data=data)

    def osd(self, cmd, data=b"", osd=0):
        return self._command("rados_osd_command", C.c_int(osd), cmd=cmd, data=data)

    def pg(self, pg, cmd, data=b""):
        return self._command("rados_pg_command", pg.encode(), cmd=cmd, data=data)

    def pool_create(self, name):
        return plain(lib.rados_pool_create(self.cluster, name.encode()))

    def pool_delete(self, name):
        return plain(lib.rados_pool_delete(self.cluster, name.encode()))
