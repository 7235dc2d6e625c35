# An uploaded object class, by upstream's `ceph` and Python binding. Env: SUITE, MODE.
# The cluster is shared: another round may have left the class.
class="tally-$SUITE-$MODE"
ceph cls put "$class" -i tally.wasm
ceph cls ls | grep "^$class v"
ceph cls ls -f json | grep -q '"grep":"r"'
ceph cls get "$class" -o got.wasm && cmp got.wasm tally.wasm
refused() { want=$1; shift; if out=$("$@" 2>&1); then echo "taken: $*"; exit 1; fi; grep -q "$want" <<< "$out" || { echo "$out"; exit 1; }; }
refused "built-in class" ceph cls put lock -i tally.wasm
refused "no name" ceph cls put "a b" -i tally.wasm
refused "not a WebAssembly module" ceph cls put other -i classes.sh
head -c 4000 tally.wasm > cut.wasm
refused "not a valid module" ceph cls put other -i cut.wasm
refused "no module" ceph cls rm other
ceph auth get-or-create "client.$class" mon 'allow r' osd "allow class $class count, allow class-read object_prefix pub" -o "$class.keyring"
refused "EACCES\|denied" ceph --id "$class" --keyring "$class.keyring" cls put other -i tally.wasm
python3 classes.py "$class" "$class.keyring"
ceph cls rm "$class"
ceph auth rm "client.$class"
