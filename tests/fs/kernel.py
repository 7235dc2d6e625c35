#!/usr/bin/env python3
"""What programs ask of a mount of the kernel's client.

kernel.py ONE TWO              links, attributes, ordinary users, errors, through two mounts
kernel.py through DIR N        makes N files, each synced, some renamed, linked and removed; says the longest time
                               that one took
kernel.py check DIR N          reads what `through` left
"""
import errno
import os
import stat
import sys
import time


def fails(want, call, *args):
    try:
        call(*args)
    except OSError as e:
        assert e.errno == want, (call, args, e)
    else:
        raise AssertionError(f"{call} {args} went well")


def as_user(uid, call):
    """Runs a function in a process of another user; it must end well."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            call()
            os._exit(0)
        except BaseException as e:
            print("as user", uid, repr(e), flush=True)
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def links(one, two):
    with open(f"{one}/a", "w") as f:
        f.write("text")
    os.link(f"{one}/a", f"{one}/b")
    assert os.stat(f"{two}/b").st_nlink == 2
    os.unlink(f"{two}/a")
    with open(f"{one}/b") as f:
        assert f.read() == "text"
    assert os.stat(f"{one}/b").st_nlink == 1
    os.symlink("b", f"{two}/s")
    with open(f"{one}/s") as f:
        assert f.read() == "text"
    # An open file lives on without a name.
    with open(f"{one}/b", "r+") as f:
        os.unlink(f"{one}/b")
        f.write("more")
        f.flush()
        os.fsync(f.fileno())
        f.seek(0)
        assert f.read() == "more"
    os.mkfifo(f"{one}/fifo")
    assert stat.S_ISFIFO(os.stat(f"{two}/fifo").st_mode)
    os.mknod(f"{one}/dev", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    assert os.stat(f"{two}/dev").st_rdev == os.makedev(1, 3)
    # A renamed file takes the place of another.
    for name in ("from", "to"):
        with open(f"{one}/{name}", "w") as f:
            f.write(name)
    os.rename(f"{two}/from", f"{two}/to")
    with open(f"{one}/to") as f:
        assert f.read() == "from"
    fails(errno.ENOENT, os.stat, f"{one}/from")


def attributes(one, two):
    path = "attributed"
    os.close(os.open(f"{one}/{path}", os.O_CREAT | os.O_WRONLY, 0o640))
    os.setxattr(f"{one}/{path}", "user.small", b"1")
    os.setxattr(f"{one}/{path}", "user.large", b"x" * 60_000)
    assert os.getxattr(f"{two}/{path}", "user.small") == b"1"
    assert len(os.getxattr(f"{two}/{path}", "user.large")) == 60_000
    fails(errno.EEXIST, os.setxattr, f"{two}/{path}", "user.small", b"2", os.XATTR_CREATE)
    fails(errno.ENODATA, os.setxattr, f"{two}/{path}", "user.none", b"2", os.XATTR_REPLACE)
    os.removexattr(f"{two}/{path}", "user.small")
    fails(errno.ENODATA, os.getxattr, f"{one}/{path}", "user.small")
    # A POSIX access list: rw for user 7 beside the owner's.
    tag = lambda kind, perm, who=0xFFFFFFFF: b"".join(
        n.to_bytes(size, "little") for n, size in ((kind, 2), (perm, 2), (who, 4)))
    acl = (2).to_bytes(4, "little") + b"".join(
        [tag(1, 6), tag(2, 6, 7), tag(4, 4), tag(0x10, 6), tag(0x20, 0)])
    os.setxattr(f"{one}/{path}", "system.posix_acl_access", acl)
    assert os.getxattr(f"{two}/{path}", "system.posix_acl_access") == acl
    as_user(7, lambda: open(f"{two}/{path}", "r+").close())
    as_user(8, lambda: fails(errno.EACCES, open, f"{two}/{path}"))
    os.utime(f"{two}/{path}", ns=(1_111_111_111_222_333_444, 1_222_222_222_333_444_555))
    assert os.stat(f"{one}/{path}").st_mtime_ns == 1_222_222_222_333_444_555


def users(one, two):
    os.mkdir(f"{one}/open", 0o777)
    os.chmod(f"{one}/open", 0o1777)

    def theirs():
        with open(f"{one}/open/theirs", "w") as f:
            f.write("x")
        os.mkdir(f"{one}/open/dir", 0o700)
        fails(errno.EACCES, os.mkdir, f"{one}/no")
        fails(errno.EPERM, os.chown, f"{one}/open/theirs", 0, 0)

    as_user(1000, theirs)
    st = os.stat(f"{two}/open/theirs")
    assert (st.st_uid, st.st_gid) == (1000, 1000)
    as_user(1001, lambda: fails(errno.EACCES, os.listdir, f"{two}/open/dir"))
    # The sticky bit: nobody removes what is another's.
    as_user(1001, lambda: fails(errno.EPERM, os.unlink, f"{two}/open/theirs"))
    os.chmod(f"{two}/open/theirs", 0o4755)
    as_user(1000, lambda: open(f"{one}/open/theirs", "r+").write("y"))
    os.mkdir(f"{one}/group")
    os.chown(f"{one}/group", 0, 77)
    os.chmod(f"{one}/group", 0o2777)
    as_user(1000, lambda: open(f"{one}/group/file", "w").close())
    assert os.stat(f"{two}/group/file").st_gid == 77


def errors(one, two):
    fails(errno.ENAMETOOLONG, os.mkdir, f"{one}/" + "n" * 256)
    os.mkdir(f"{one}/full")
    os.close(os.open(f"{two}/full/one", os.O_CREAT | os.O_EXCL))
    fails(errno.EEXIST, os.open, f"{one}/full/one", os.O_CREAT | os.O_EXCL)
    fails(errno.ENOTEMPTY, os.rmdir, f"{one}/full")
    fails(errno.EINVAL, os.rename, f"{one}/full", f"{one}/full/below")
    fails(errno.ENOTDIR, os.mkdir, f"{one}/full/one/below")
    fails(errno.EISDIR, os.unlink, f"{two}/full")
    with open(f"{one}/full/one", "r+b") as f:
        f.truncate(1 << 40)
        assert os.stat(f"{two}/full/one").st_size == 1 << 40
        fails(errno.EFBIG, os.truncate, f"{one}/full/one", 1 << 45)
        f.truncate(0)


def through(top, count):
    os.makedirs(top, exist_ok=True)
    longest = 0.0
    for n in range(count):
        began = time.monotonic()
        with open(f"{top}/{n}", "w") as f:
            f.write(f"{n}" * 50)
            f.flush()
            os.fsync(f.fileno())
        if n % 5 == 1:
            os.rename(f"{top}/{n}", f"{top}/renamed-{n}")
        if n % 5 == 2:
            os.link(f"{top}/{n}", f"{top}/linked-{n}")
        if n % 5 == 3:
            os.unlink(f"{top}/{n}")
        longest = max(longest, time.monotonic() - began)
        time.sleep(0.1)
    at = os.open(top, os.O_RDONLY)
    os.fsync(at)
    os.close(at)
    print(f"the longest change took {longest:.1f} s")


def check(top, count):
    want = {}
    for n in range(count):
        text = f"{n}" * 50
        if n % 5 != 3:
            want[f"renamed-{n}" if n % 5 == 1 else f"{n}"] = text
        if n % 5 == 2:
            want[f"linked-{n}"] = text
    got = {}
    for name in os.listdir(top):
        with open(f"{top}/{name}") as f:
            got[name] = f.read()
    assert got == want, sorted(set(got.items()) ^ set(want.items()))[:5]


def main():
    if sys.argv[1] == "through":
        return through(sys.argv[2], int(sys.argv[3]))
    if sys.argv[1] == "check":
        return check(sys.argv[2], int(sys.argv[3]))
    one, two = sys.argv[1:3]
    one, two = (f"{top}/programs" for top in (one, two))
    os.mkdir(one)
    for case in (links, attributes, users, errors):
        case(one, two)
        print(case.__name__, "ok", flush=True)


main()
