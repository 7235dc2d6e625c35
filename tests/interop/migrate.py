"""Images migrated by the manager's tasks beside the same by `rbd migration`. Argument: a prefix for pools."""
import hashlib, json, random, subprocess, sys, time
import rados, rbd

M = 1 << 20
SIZE = 20 * M
UNIT = 64 << 10
FROM, TO = (f'{sys.argv[1]}-{way}' for way in ('from', 'to'))
cluster = rados.Rados(conffile='')
cluster.conf_read_file()
cluster.connect()


def sh(line, fails=False):
    done = subprocess.run(line, shell=True, capture_output=True, text=True)
    assert (done.returncode != 0) == fails, f'{line}: {done.returncode}\n{done.stdout}{done.stderr}'
    return done.stdout + done.stderr


def play(image, rng, count):
    for _ in range(count):
        off, kind = rng.randrange(image.size() - 1), rng.random()
        length = min(image.size() - off, rng.choice([512, 4096, 10000, 65536, M]))
        if kind < .6:
            image.write(rng.randbytes(length), off)
        elif kind < .7:
            image.write(bytes(length), off)
        else:
            image.discard(off, length)


def content(io, name):
    """Size and digest of the image and of each snapshot."""
    with rbd.Image(io, name, read_only=True) as image:
        names = [s['name'] for s in image.list_snaps()]
    found = {}
    for snap in names + [None]:
        with rbd.Image(io, name, snapshot=snap, read_only=True) as image:
            found[snap] = image.size(), hashlib.md5(image.read(0, image.size())).hexdigest()
    return found


def shape(io, name):
    """What else the two must have in common: the header, and what differs between snapshots."""
    with rbd.Image(io, name, read_only=True) as image:
        snaps = [(s['name'], s['size'], image.is_protected_snap(s['name'])) for s in image.list_snaps()]
        parent = (image.parent_info(), image.overlap()) if image.op_features() & 2 else None
        found = [image.size(), image.features(), image.op_features(), image.flags(), image.stripe_unit(),
                 image.stripe_count(), image.stat()['order'], image.data_pool_id(), snaps, parent,
                 sorted(image.metadata_list()), len(list(image.list_children2()))]
    data, last = b'', None
    for snap in [s[0] for s in snaps] + [None]:
        changes, before = [], data
        with rbd.Image(io, name, snapshot=snap, read_only=True) as image:
            image.diff_iterate(0, image.size(), last, lambda *c: changes.append(c), whole_object=True)
            data = image.read(0, image.size())
        # In units of the finest layout: objects of zeros only are copied by the one and not by the other.
        units = sorted({u for off, length, _ in changes for u in range(off // UNIT, -(-(off + length) // UNIT))})
        parts = ((u, slice(u * UNIT, (u + 1) * UNIT)) for u in units)
        found += [(snap, u) for u, at in parts if before[at].rstrip(b'\0') != data[at].rstrip(b'\0')]
        last = snap
    return found


def task(step, spec):
    sh(f'ceph rbd task add migration {step} {spec}')
    for _ in range(300):
        left = json.loads(sh('ceph rbd task list'))
        if not left:
            return
        assert not any('retry_message' in t for t in left), left
        time.sleep(.2)
    raise AssertionError(left)


def migrate(kind, by_task, snaps=2, options='', clone=False, writes=0, kids=False, back=False,
            group=False):
    """One image's way to its end; what it is like then. None of its bytes may be lost."""
    name = f'{kind}-{"task" if by_task else "librbd"}'
    at, to = cluster.open_ioctx(FROM), cluster.open_ioctx(TO)
    rng = random.Random(kind)
    if clone:
        sh(f'rbd clone --rbd-default-clone-format 2 {FROM}/parent@p {FROM}/{name}')
    else:
        rbd.RBD().create(at, name, SIZE, features=61)
    with rbd.Image(at, name) as image:
        play(image, rng, 8)
        for snap in range(snaps):
            image.create_snap(f's{snap}')
            play(image, rng, 4)
        image.metadata_set('key', 'value')
        if kids:
            image.protect_snap('s0')
    for child in (1, 2) if kids else ():
        sh(f'rbd clone --rbd-default-clone-format {child} {FROM}/{name}@s0 {FROM}/kid{child}-{name}')
    if group:
        sh(f'rbd group create {FROM}/g; rbd group image add {FROM}/g {FROM}/{name}')
    before = content(at, name)
    sh(f'rbd migration prepare {options} {FROM}/{name} {TO}/{name}')
    assert content(to, name) == before
    with rbd.Image(to, name) as image:
        play(image, rng, writes)
        if writes and not back:
            image.create_snap('later')
            play(image, rng, writes)
    before = content(to, name)
    for step in ('execute', 'abort' if back else 'commit'):
        if by_task:
            task(step, f'{TO}/{name}')
        else:
            force = '--force' if step == 'commit' else ''
            sh(f'rbd migration {step} {TO}/{name} --no-progress {force}')
        end = at if back and step == 'abort' else to
        assert content(end, name) == before, (kind, step)
    for io in (at, to):
        assert not list(rbd.RBD().trash_list(io)), kind
    spec = f'{FROM if back else TO}/{name}'
    for snap in before if by_task and not writes else ():
        said = sh(f'rbd object-map check {spec}' + (f'@{snap}' if snap else ''))
        assert 'marked as' not in said, said
    found = shape(end, name)
    if group:
        members = json.loads(sh(f'rbd group image list {FROM}/g --format json'))
        assert [(m['pool'], m['image'], m['state']) for m in members] == [(FROM if back else TO, name, 0)], members
        with rbd.Image(end, name, read_only=True) as image:
            assert image.group()['name'] == 'g'
        sh(f'rbd group rm {FROM}/g')
    for child in (1, 2) if kids else ():
        sh(f'rbd rm --no-progress {FROM}/kid{child}-{name}')
    if kids:
        sh(f'rbd snap unprotect {spec}@s0')
    sh(f'rbd snap purge {spec} --no-progress; rbd rm {spec} --no-progress')
    return found


for pool in (FROM, TO):
    sh(f'ceph osd pool create {pool} 8; rbd pool init {pool}')
io = cluster.open_ioctx(FROM)
rbd.RBD().create(io, 'parent', SIZE - M, features=61)
with rbd.Image(io, 'parent') as image:
    play(image, random.Random(1), 8)
    image.create_snap('p')
    image.protect_snap('p')
for kind, how in {
    'plain': {},
    'layout': dict(options='--object-size 1M --stripe-unit 64K --stripe-count 3'),
    'clone': dict(clone=True),
    'flat': dict(clone=True, options='--flatten --object-size 8M'),
    'used': dict(writes=6),
    'kids': dict(kids=True),
    'back': dict(back=True, writes=8, kids=True),
    'grouped': dict(group=True),
    'grouped-back': dict(group=True, back=True),
}.items():
    tasks, librbd = migrate(kind, True, **how), migrate(kind, False, **how)
    # Of an image that was used meanwhile librbd's own maps are not exact.
    assert tasks == librbd or how.get('writes'), f'{kind}:\n{tasks}\n{librbd}'
left = {o.key for pool in (FROM, TO) for o in cluster.open_ioctx(pool).list_objects()}
with rbd.Image(io, 'parent', read_only=True) as image:
    prefix = image.block_name_prefix()
assert not [o for o in left if o.startswith('rbd_data') and not o.startswith(prefix)], left
# Refused: what does not migrate, what is too early, what comes from elsewhere.
assert 'is not migrating' in sh(f'ceph rbd task add migration execute {FROM}/parent', True)
rbd.RBD().create(io, 'm', M)
sh(f'rbd migration prepare {FROM}/m {TO}/m')
assert 'has not completed migration' in sh(f'ceph rbd task add migration commit {TO}/m', True)
task('abort', f'{FROM}/m')
for pool in (FROM, TO):
    sh(f'ceph osd pool rm {pool} {pool} --yes-i-really-really-mean-it')
