#!/bin/bash
# Runs a command with a separate root directory: that of the machine, with the files of a stage as overlay. It must be
# run in a new mount namespace, so that all mounts are gone when the command exits.
#
# enter STAGE HOSTNAME USER GROUP [SOURCE=TARGET | PATH]... -- COMMAND...
#   SOURCE=TARGET  a folder, and its path for the command
#   PATH           a folder that has the same path for the command
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
  # The user of the command needs access to the parent folders.
  above=$(dirname "$target")
  while [[ $above != / ]]; do
    chmod a+rx "$root$above"
    above=$(dirname "$above")
  done
  shift
done
shift
hostname "$name"
# No exec: a change of user clears the parent death signal of this shell, and the processes of the command would survive
# the parent.
chroot "$root" setpriv --reuid="$user" --regid="$group" --clear-groups -- "$@" || exit $?
exit 0
