#!/bin/bash
# Runs a command in a root of its own: the machine's, with a stage's files laid over it. It is run in a mount namespace
# of its own, so that all of this is gone when the command ends.
#
# enter STAGE HOSTNAME USER GROUP [SOURCE=TARGET | PATH]... -- COMMAND...
#   SOURCE=TARGET  a folder, and where the command sees it
#   PATH           a folder that the command has to reach under its own name
set -o errexit -o nounset
stage=$1 name=$2 user=$3 group=$4
shift 4
mount -t tmpfs -o mode=755 tmpfs "$stage/own"
mkdir "$stage/own/upper" "$stage/own/work" "$stage/own/root"
cp -a "$stage/files/." "$stage/own/upper/"
root=$stage/own/root
mount -t overlay -o "lowerdir=/,upperdir=$stage/own/upper,workdir=$stage/own/work" overlay "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
while [[ $1 != -- ]]; do
  source=${1%%=*} target=${1#*=}
  if [[ $1 == *=* || ! -e $root$target ]]; then
    mkdir -p "$root$target"
    mount --bind "$source" "$root$target"
  fi
  # The command's user has to get there.
  above=$(dirname "$target")
  while [[ $above != / ]]; do
    chmod a+rx "$root$above"
    above=$(dirname "$above")
  done
  shift
done
shift
hostname "$name"
# No exec: a change of user would undo that the death of the one who waits for this shell is its own, and with it that
# of all that runs here.
chroot "$root" setpriv --reuid="$user" --regid="$group" --clear-groups -- "$@" || exit $?
exit 0
