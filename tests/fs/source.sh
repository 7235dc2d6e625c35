# A source tree on a mount: unpacked, built, kept by git: source.sh MOUNT TAR. Runs in a Debian root with gcc,
# make and git.
set -eEuo pipefail
mount=$1 tar=$2
trap 'echo "FAILED in line $LINENO: $BASH_COMMAND"' ERR
export HOME=/tmp GIT_CONFIG_NOSYSTEM=1
local=$(mktemp -d); trap 'rm -rf "$local"' EXIT
sums() { (cd "$1"; find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum); }

tar --no-same-owner -xf "$tar" -C "$local"; tar --no-same-owner -xf "$tar" -C "$mount"
tree=$(ls "$local")
sums "$local/$tree" >"$local/sums"
sums "$mount/$tree" | cmp - "$local/sums"
cd "$mount/$tree"
git -c init.defaultBranch=main init -q .; git config user.email a@example.com; git config user.name a
git add -A; git commit -qm first
make -s -j2 linux >"$local/make.log" 2>&1 || { tail -n 20 "$local/make.log"; false; }
[ "$(src/lua -e 'print(6 * 7)')" = 42 ]
make -s clean >/dev/null
[ -z "$(git status --porcelain)" ]
for n in 1 2 3; do echo "$n" >>README; git commit -qam "change $n"; done
git branch side HEAD~2; git checkout -q side; git checkout -q main
git gc -q; git fsck --full --strict 2>&1 | { ! grep -E 'error|missing|corrupt'; }
git clone -q . ../clone; git -C ../clone fsck --full
git reset -q --hard HEAD~3
rm -rf .git; sums . | cmp - "$local/sums"
cd ..; rm -r "$tree" clone
[ -z "$(ls)" ]
echo "a tree of $(wc -l <"$local/sums") files"
