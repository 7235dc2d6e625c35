"""Subvolumes as ceph-csi, Rook and Manila ask for them, with a stock client: `ceph` and libcephfs of 20.2.4.

volumes.py CONF calls        every command, its errno, sentence and the shape of its answer
volumes.py CONF clone        begins a clone of 48 MiB in 400 files, prints a line, waits until it is complete
volumes.py CONF volume       makes, describes, renames, removes a file system
Shapes were taken from stock ceph-mgr 20.2.4.
"""

import json
import os
import subprocess
import sys
import time

import cephfs

CONF = sys.argv[1]
FS = 'cephfs'
UUID = 36
TIMES = {'atime', 'ctime', 'mtime', 'created_at'}
COMMON = TIMES | {
    'bytes_pcent', 'bytes_quota', 'bytes_used', 'casesensitive', 'data_pool', 'gid', 'mode', 'mon_addrs',
    'normalization', 'uid'}
SUB = COMMON | {'earmark', 'features', 'flavor', 'path', 'pool_namespace', 'state', 'type'}
FEATURES = ['snapshot-clone', 'snapshot-autoprotect', 'snapshot-retention']


def ceph(*words):
    run = subprocess.run(['ceph', '-c', CONF, *words], capture_output=True, text=True, timeout=120)
    errors = [line for line in run.stderr.splitlines() if line.startswith('Error ')]
    return run.returncode, run.stdout, errors[0] if errors else run.stderr.strip()


def fs(line):
    """The output of a command that succeeds."""
    code, out, err = ceph('fs', *line.split())
    assert code == 0, (line, code, err)
    return out


def fails(line, code, sentence):
    got, out, err = ceph('fs', *line.split())
    assert (got, out) == (code, '') and sentence in err, (line, got, out, err)


def says(line, value):
    out = fs(line)
    assert json.loads(out) == value, (line, out)
    return out


def info(line, keys):
    out = json.loads(fs(line))
    assert set(out) == keys, (line, set(out) ^ keys)
    assert list(out) == sorted(out), (line, 'keys are sorted')
    return out


def names(line):
    return sorted(one['name'] for one in json.loads(fs(line)))


def wait(what, is_so, seconds=60):
    end = time.time() + seconds
    while not is_so():
        assert time.time() < end, what
        time.sleep(0.2)


def clone_state(name, *more):
    return json.loads(fs(' '.join(['clone status', FS, name, *more])))['status']['state']


def mount(auth_id='admin', root='/', key=None):
    conf = {'key': key} if key else {}
    client = cephfs.LibCephFS(conffile=CONF, auth_id=auth_id, conf=conf)
    client.mount(mount_root=root.encode(), filesystem_name=FS.encode())
    return client


def put(client, path, data):
    file = client.open(path, 'w', 0o644)
    client.write(file, data, 0)
    client.fsync(file, 0)
    client.close(file)


def get(client, path, size=1 << 24):
    file = client.open(path, 'r')
    data = client.read(file, 0, size)
    client.close(file)
    return data


def groups():
    says(f'subvolumegroup ls {FS}', [])
    assert fs(f'subvolumegroup exist {FS}') == 'no subvolumegroup exists\n'
    assert fs(f'subvolumegroup create {FS} csi') == ''
    fs(f'subvolumegroup create {FS} csi')
    fs(f'subvolumegroup create {FS} g2 --size 1000000 --uid 5 --gid 6 --mode 750')
    assert names(f'subvolumegroup ls {FS}') == ['csi', 'g2']
    assert fs(f'subvolumegroup exist {FS}') == 'subvolumegroup exists\n'
    assert fs(f'subvolumegroup getpath {FS} csi') == '/volumes/csi\n'
    one = info(f'subvolumegroup info {FS} g2', COMMON)
    assert (one['bytes_quota'], one['bytes_pcent'], one['mode'], one['uid'], one['gid']) == (
        1000000, '0.00', 0o40750, 5, 6), one
    one = info(f'subvolumegroup info {FS} csi', COMMON)
    assert (one['bytes_quota'], one['bytes_pcent'], one['mode']) == ('infinite', 'undefined', 0o40755), one
    says(f'subvolumegroup resize {FS} g2 2000000',
         [{'bytes_used': 0}, {'bytes_quota': 2000000}, {'bytes_pcent': '0.00'}])
    says(f'subvolumegroup resize {FS} g2 inf',
         [{'bytes_used': 0}, {'bytes_quota': 0}, {'bytes_pcent': 'undefined'}])
    fails(f'subvolumegroup resize {FS} g2 abc', 22, "invalid size option 'abc'")
    says(f'subvolumegroup pin {FS} g2 export 0', {})
    says(f'subvolumegroup snapshot ls {FS} g2', [])
    fails(f'subvolumegroup snapshot create {FS} g2 s', 38, 'subvolume group snapshots are not supported')
    fails(f'subvolumegroup create {FS} _nogroup', 1, "Operation not permitted for group '_nogroup'")
    fails(f'subvolumegroup create {FS} _index', 22, "'_index' is an internal directory")
    fails('subvolumegroup create nosuch g', 2, "FS 'nosuch' not found")
    fails(f'subvolumegroup info {FS} nosuch', 2, "subvolume group 'nosuch' does not exist")
    fails(f'subvolumegroup rm {FS} nosuch', 2, "subvolume group 'nosuch' does not exist")
    fs(f'subvolumegroup rm {FS} nosuch --force')
    fs(f'subvolumegroup rm {FS} g2')


def subvolumes(root):
    assert fs(f'subvolume exist {FS}') == 'no subvolume exists\n'
    fs(f'subvolume create {FS} a --size 10485760')
    fs(f'subvolume create {FS} a --size 20971520 --mode 700')
    fs(f'subvolume create {FS} v --group_name csi --namespace-isolated --uid 1000 --gid 1001 --mode 750')
    assert fs(f'subvolume exist {FS}') == 'subvolume exists\n'
    assert (names(f'subvolume ls {FS}'), names(f'subvolume ls {FS} csi')) == (['a'], ['v'])
    one = info(f'subvolume info {FS} a', SUB)
    assert (one['bytes_quota'], one['mode'], one['features']) == (20971520, 0o40700, FEATURES), one
    assert (one['flavor'], one['state'], one['type'], one['uid']) == (2, 'complete', 'subvolume', 0), one
    path = fs(f'subvolume getpath {FS} a')
    assert path == one['path'] + '\n' and path.startswith('/volumes/_nogroup/a/'), path
    assert len(path.split('/')[-1].strip()) == UUID, path
    two = info(f'subvolume info {FS} v csi', SUB)
    assert (two['pool_namespace'], two['uid'], two['gid'], two['mode']) == (
        'fsvolumens__csi_v', 1000, 1001, 0o40750), two
    text = get(root, '/volumes/_nogroup/a/.meta').decode()
    assert text == f'[GLOBAL]\nversion = 2\ntype = subvolume\npath = {one["path"]}\nstate = complete\n\n', text
    assert root.getxattr('/volumes/_nogroup/a', 'ceph.dir.subvolume') == b'1'
    says(f'subvolume resize {FS} a 30000000',
         [{'bytes_used': 0}, {'bytes_quota': 30000000}, {'bytes_pcent': '0.00'}])
    put(root, one['path'] + '/f', b'x' * 100000)
    fails(f'subvolume resize {FS} a 5 --no_shrink', 22, "The new size '5' would be lesser than the current used size")
    fails(f'subvolume resize {FS} a -5', 22, 'Invalid subvolume size')
    fails(f'subvolume create {FS} x --group_name nosuch', 2, "subvolume group 'nosuch' does not exist")
    fails(f'subvolume create {FS} x --pool_layout nosuch', 22, "invalid pool layout 'nosuch'")
    fails(f'subvolume create {FS} x --mode 99', 22, "Invalid mode '99'")
    fails(f'subvolume create {FS} a/b', 22, 'invalid')
    for verb in ['info', 'getpath', 'rm']:
        fails(f'subvolume {verb} {FS} nosuch', 2, "subvolume 'nosuch' does not exist")
    fs(f'subvolume rm {FS} nosuch --force')
    fails(f'subvolumegroup rm {FS} csi', 39, 'subvolume group csi contains subvolume(s)')
    says(f'subvolume pin {FS} a export 0', {})
    fs(f'subvolume earmark set {FS} a --earmark nfs')
    assert fs(f'subvolume earmark get {FS} a') == 'nfs\n'
    fs(f'subvolume metadata set {FS} a csi.storage.k8s.io/pvc/name p1')
    assert fs(f'subvolume metadata get {FS} a csi.storage.k8s.io/pvc/name') == 'p1\n'
    says(f'subvolume metadata ls {FS} a', {'csi.storage.k8s.io/pvc/name': 'p1'})
    fails(f'subvolume metadata get {FS} a nok', 2, "key 'nok' does not exist.")
    fs(f'subvolume metadata rm {FS} a csi.storage.k8s.io/pvc/name')
    fails(f'subvolume metadata rm {FS} a k', 2, 'subvolume metadata does not exist')
    fs(f'subvolume metadata rm {FS} a k --force')
    says(f'subvolume metadata ls {FS} a', {})


def snapshots(root):
    path = fs(f'subvolume getpath {FS} a').strip()
    fs(f'subvolume snapshot create {FS} a s1')
    fs(f'subvolume snapshot create {FS} a s1')
    put(root, path + '/later', b'later')
    says(f'subvolume snapshot ls {FS} a', [{'name': 's1'}])
    one = info(f'subvolume snapshot info {FS} a s1', {'created_at', 'data_pool', 'has_pending_clones'})
    assert one['has_pending_clones'] == 'no' and len(one['created_at']) == 26, one
    at = fs(f'subvolume snapshot getpath {FS} a s1').strip()
    assert at == f'/volumes/_nogroup/a/.snap/s1/{path.split("/")[-1]}', at
    assert get(root, at + '/f') == b'x' * 100000
    fs(f'subvolume snapshot protect {FS} a s1')
    fs(f'subvolume snapshot unprotect {FS} a s1')
    fs(f'subvolume snapshot metadata set {FS} a s1 k v')
    says(f'subvolume snapshot metadata ls {FS} a s1', {'k': 'v'})
    fs(f'subvolume snapshot metadata rm {FS} a s1 k')
    for line in [f'snapshot info {FS} a nosuch', f'snapshot rm {FS} a nosuch', f'snapshot clone {FS} a nosuch c']:
        fails(f'subvolume {line}', 2, "snapshot 'nosuch' does not exist")
    fs(f'subvolume snapshot rm {FS} a nosuch --force')
    fails(f'subvolume rm {FS} a', 39, "subvolume 'a' has snapshots")
    # A clone has what the snapshot has, with quota and mode.
    fs(f'subvolume snapshot clone {FS} a s1 c1 --target_group_name csi')
    wait('the clone', lambda: clone_state('c1', 'csi') == 'complete')
    says(f'clone status {FS} c1 csi', {'status': {'state': 'complete'}})
    clone = info(f'subvolume info {FS} c1 csi', SUB | {'source'})
    assert clone['source'] == {'group': '_nogroup', 'snapshot': 's1', 'subvolume': 'a', 'volume': FS}, clone
    assert (clone['type'], clone['mode'], clone['bytes_quota']) == ('clone', 0o40700, 30000000), clone
    assert get(root, clone['path'] + '/f') == b'x' * 100000
    assert root.stat(clone['path']).st_mode == 0o40700
    try:
        root.stat(clone['path'] + '/later')
        raise AssertionError('the clone has what came after the snapshot')
    except cephfs.ObjectNotFound:
        pass
    fails(f'subvolume snapshot clone {FS} a s1 c1 --target_group_name csi', 17, "subvolume 'c1' exists")
    fails(f'clone status {FS} a', 95, "operation 'clone-status' is not allowed on subvolume 'a' of type subvolume")
    fails(f'clone cancel {FS} c1 csi', 22, 'cannot cancel -- clone finished')
    fails(f'clone status {FS} nosuch', 2, "subvolume 'nosuch' does not exist")
    # What is left of a subvolume that is removed with its snapshots.
    fs(f'subvolume rm {FS} a --retain-snapshots')
    one = info(f'subvolume info {FS} a', {'features', 'flavor', 'mon_addrs', 'state', 'type'})
    assert one['state'] == 'snapshot-retained', one
    fails(f'subvolume getpath {FS} a', 2, 'subvolume "a" is removed and has only snapshots retained')
    fs(f'subvolume snapshot clone {FS} a s1 c2')
    wait('the clone of what was removed', lambda: clone_state('c2') == 'complete')
    assert get(root, fs(f'subvolume getpath {FS} c2').strip() + '/f') == b'x' * 100000
    fs(f'subvolume snapshot rm {FS} a s1')
    fails(f'subvolume info {FS} a', 2, "subvolume 'a' does not exist")


def keys(root):
    fs(f'subvolume create {FS} k --group_name csi')
    path = fs(f'subvolume getpath {FS} k csi').strip()
    assert fs(f'subvolume authorize {FS} k alice --group_name csi') == ''
    key = fs(f'subvolume authorize {FS} k bob --group_name csi --tenant_id t1').strip()
    says(f'subvolume authorized_list {FS} k csi', [{'alice': 'rw'}, {'bob': 'rw'}])
    fails(f'subvolume authorize {FS} k admin --group_name csi', 1, 'auth ID: admin exists and not created by mgr plugin')
    fails(f'subvolume authorize {FS} k bob --group_name csi --tenant_id t2', 1, 'auth ID: bob is already in use')
    bob = mount('bob', path, key)
    put(bob, '/mine', b'mine')
    assert get(root, path + '/mine') == b'mine'
    assert 'path=' + path in ceph('auth', 'get', 'client.bob')[1]
    fs(f'subvolume evict {FS} k bob --group_name csi')
    try:
        put(bob, '/again', b'x')
        raise AssertionError('bob was evicted')
    except cephfs.Error:
        pass
    fs(f'subvolume authorize {FS} k alice --group_name csi --access_level r')
    caps = ceph('auth', 'get', 'client.alice')[1]
    assert 'allow r path=' + path in caps and 'rw' not in caps, caps
    fs(f'subvolume deauthorize {FS} k alice csi')
    assert ceph('auth', 'get', 'client.alice')[0] == 2, 'a key without a subvolume is gone'
    fails(f'subvolume deauthorize {FS} k nosuch csi', 2, "auth ID: nosuch doesn't exist")
    says(f'subvolume authorized_list {FS} k csi', [{'bob': 'rw'}])
    fs(f'subvolume deauthorize {FS} k bob csi')


def calls():
    root = mount()
    groups()
    subvolumes(root)
    snapshots(root)
    keys(root)
    for name, group in [('c2', ''), ('c1', 'csi'), ('v', 'csi'), ('k', 'csi')]:
        fs(f'subvolume rm {FS} {name} {group}'.strip())
    fs(f'subvolumegroup rm {FS} csi')
    volume = {'mon_addrs', 'pools', 'pending_subvolume_deletions', 'used_size'}
    wait('the trash', lambda: info(f'volume info {FS}', volume)['pending_subvolume_deletions'] == 0)
    pools = info(f'volume info {FS}', volume)['pools']
    assert set(pools) == {'data', 'metadata'} and set(pools['data'][0]) == {'avail', 'name', 'used'}, pools
    code, _, err = ceph('fs', 'quiesce', FS, 'a')
    assert code == 95, err
    root.shutdown()


def clone():
    root = mount()
    fs(f'subvolume create {FS} big')
    path = fs(f'subvolume getpath {FS} big').strip()
    for n in range(400):
        put(root, f'{path}/{n}', bytes([n % 251]) * (120 << 10))
    fs(f'subvolume snapshot create {FS} big s')
    fs(f'subvolume snapshot clone {FS} big s copy')
    fails(f'subvolume snapshot rm {FS} big s', 11, "snapshot 's' has pending clones")
    fails(f'subvolume info {FS} copy', 11, 'subvolume "copy" is not ready for operation "info"')
    print('begun', flush=True)
    sys.stdin.readline()

    def complete():
        code, out, err = ceph('fs', 'clone', 'status', FS, 'copy')
        assert code in (0, 11, 108), err  # another manager takes over
        return code == 0 and json.loads(out)['status']['state'] == 'complete'

    wait('the clone', complete, 120)
    at = fs(f'subvolume getpath {FS} copy').strip()
    for n in range(400):
        assert get(root, f'{at}/{n}') == bytes([n % 251]) * (120 << 10), n
    fs(f'subvolume snapshot clone {FS} big s other')
    fs(f'clone cancel {FS} other')
    wait('the end of the copy', lambda: clone_state('other') == 'canceled')
    fails(f'subvolume getpath {FS} other', 11, 'is not ready for operation "getpath"')
    fs(f'subvolume rm {FS} other --force')
    fs(f'subvolume rm {FS} copy')
    wait('nothing waits for the snapshot', lambda: ceph(*f'fs subvolume snapshot rm {FS} big s'.split())[0] == 0)
    fs(f'subvolume rm {FS} big')
    root.shutdown()


def volume():
    fs('volume create w')
    assert names('volume ls') == [FS, 'w']
    pools = json.loads(fs('volume info w'))['pools']
    assert [p['name'] for p in pools['data'] + pools['metadata']] == ['cephfs.w.data', 'cephfs.w.meta'], pools
    fails('volume info nosuch', 2, "FS 'nosuch' not found")
    fails('volume rm w', 1, 'WARNING: this will *PERMANENTLY DESTROY* all data')
    fails('volume rm w --yes-i-really-mean-it', 1, 'pool deletion is disabled')
    fails('volume rename w x', 1, 'WARNING: This will rename the filesystem')
    fails('volume rename w x --yes-i-really-mean-it', 1, "CephFS 'w' is not offline")
    fs('set w refuse_client_session true')
    fs('fail w')
    fs('volume rename w x --yes-i-really-mean-it')
    assert names('volume ls') == [FS, 'x']
    ceph('config', 'set', 'mon', 'mon_allow_pool_delete', 'true')
    out = fs('volume rm x --yes-i-really-mean-it')
    assert out.startswith("metadata pool: cephfs.x.meta data pool: ['cephfs.x.data'] removed."), out
    assert names('volume ls') == [FS] and 'cephfs.' not in ceph('osd', 'pool', 'ls')[1]


{'calls': calls, 'clone': clone, 'volume': volume}[sys.argv[2]]()
