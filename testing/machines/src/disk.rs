//! A disk of a machine: a FUSE file system on a volume's directory. After the disk is detached, every process that has
//! it mounted, or has open files on it, gets EIO.
//!
//! The kernel caches nothing, so every read and write passes through here. File locks are the kernel's. Files cannot be
//! mapped shared. A flush is not passed on to the real disk: a simulated machine dies without the kernel that holds its
//! files.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, FileTimes, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, MountOption, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, Session, SessionACL,
    TimeOrNow, WriteFlags,
};
use nix::fcntl::{AtFlags, OFlag, readlinkat};
use nix::mount::{MntFlags, umount2};
use nix::sys::stat::{Mode, SFlag, mknod};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::linkat;

/// How long the kernel may cache names and attributes: not at all.
const NO_CACHE: Duration = Duration::ZERO;

/// The connection of a machine to a disk.
pub(crate) struct DiskConnection {
    detached: RwLock<bool>,
    /// Called after each write with the id of the process.
    on_write: Box<dyn Fn(u32) + Send + Sync>,
}

impl DiskConnection {
    pub(crate) fn new(on_write: impl Fn(u32) + Send + Sync + 'static) -> DiskConnection {
        DiskConnection { detached: RwLock::new(false), on_write: Box::new(on_write) }
    }

    /// Detaches the disk. Operations in progress finish before this returns; later ones fail.
    pub(crate) fn detach(&self) {
        *self.detached.write().unwrap_or_else(PoisonError::into_inner) = true;
    }
}

/// A disk that is mounted on a machine. Bind mounts of it stay after this value is dropped.
pub(crate) struct MountedDisk {
    path: PathBuf,
    session: Option<BackgroundSession>,
}

impl MountedDisk {
    /// Mounts the content of `directory` at `path`.
    pub(crate) fn mount(directory: &Path, path: PathBuf, connection: Arc<DiskConnection>) -> Result<MountedDisk> {
        let action = || format!("mounting a disk at {}", path.display());
        std::fs::create_dir_all(&path).with_context(action)?;
        let mut options = Config::default();
        options.acl = SessionACL::All;
        options.mount_options = vec![
            MountOption::FSName("disk".to_owned()),
            MountOption::DefaultPermissions,
            MountOption::Suid,
            MountOption::NoAtime,
        ];
        let session = Session::new(Disk::new(directory, connection)?, &path, &options).with_context(action)?;
        let session = Some(session.spawn().with_context(action)?);
        Ok(MountedDisk { path, session })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for MountedDisk {
    fn drop(&mut self) {
        // An error means that it is not mounted. The FUSE thread ends with the last process that uses the mount.
        let _ = umount2(&self.path, MntFlags::MNT_DETACH);
        drop(self.session.take());
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// The file system. Inode numbers are those of the underlying directory, except for the root.
struct Disk {
    connection: Arc<DiskConnection>,
    table: Mutex<Table>,
}

struct Table {
    /// By inode: a handle that stays valid after a rename, and the kernel's lookup count.
    inodes: BTreeMap<u64, (Arc<File>, u64)>,
    open: BTreeMap<u64, Open>,
    last: u64,
}

#[derive(Clone)]
enum Open {
    File(Arc<File>),
    /// The entries of a directory when it was opened.
    Directory(Arc<Vec<(u64, FileType, Vec<u8>)>>),
}

impl Disk {
    fn new(directory: &Path, connection: Arc<DiskConnection>) -> Result<Disk> {
        let root = handle(directory).with_context(|| format!("opening {}", directory.display()))?;
        let inodes = [(INodeNo::ROOT.0, (Arc::new(root), 1))].into();
        Ok(Disk { connection, table: Mutex::new(Table { inodes, open: BTreeMap::new(), last: 0 }) })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs an operation on the underlying directory; EIO if the disk is detached.
    fn act<T>(&self, act: impl FnOnce() -> io::Result<T>) -> Result<T, Errno> {
        let detached = self.connection.detached.read().unwrap_or_else(PoisonError::into_inner);
        if *detached { Err(Errno::EIO) } else { act().map_err(Errno::from) }
    }

    /// Runs an operation that writes, and reports the write.
    fn change<T>(&self, request: &Request, act: impl FnOnce() -> io::Result<T>) -> Result<T, Errno> {
        self.act(|| {
            let done = act()?;
            (self.connection.on_write)(request.pid());
            Ok(done)
        })
    }

    fn inode(&self, inode: INodeNo) -> io::Result<Arc<File>> {
        let table = self.table();
        table.inodes.get(&inode.0).map(|(file, _)| file.clone()).ok_or_else(|| nix::errno::Errno::ESTALE.into())
    }

    /// Returns a path to an inode, valid while the kernel knows the inode.
    fn path(&self, inode: INodeNo) -> io::Result<PathBuf> {
        Ok(proc_path(&*self.inode(inode)?))
    }

    /// Returns the attributes of a path, and increments its lookup count.
    fn find(&self, path: &Path) -> io::Result<FileAttr> {
        let file = handle(path)?;
        let meta = file.metadata()?;
        self.table().inodes.entry(meta.ino()).or_insert_with(|| (Arc::new(file), 0)).1 += 1;
        attributes(&meta, meta.ino())
    }

    fn attributes(&self, inode: INodeNo) -> io::Result<FileAttr> {
        attributes(&self.inode(inode)?.metadata()?, inode.0)
    }

    fn add_open(&self, open: Open) -> FileHandle {
        let mut table = self.table();
        table.last += 1;
        let id = table.last;
        table.open.insert(id, open);
        FileHandle(id)
    }

    fn file(&self, id: FileHandle) -> io::Result<Arc<File>> {
        match self.table().open.get(&id.0) {
            Some(Open::File(file)) => Ok(file.clone()),
            _ => Err(nix::errno::Errno::EBADF.into()),
        }
    }

    fn forget_inode(&self, inode: INodeNo, times: u64) {
        let mut table = self.table();
        if let Some((_, known)) = table.inodes.get_mut(&inode.0).filter(|_| inode != INodeNo::ROOT) {
            *known = known.saturating_sub(times);
            if *known == 0 {
                table.inodes.remove(&inode.0);
            }
        }
    }
}

/// Returns an `O_PATH` handle, without following symlinks.
fn handle(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags((OFlag::O_PATH | OFlag::O_NOFOLLOW).bits()).open(path)
}

fn proc_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn attributes(meta: &Metadata, inode: u64) -> io::Result<FileAttr> {
    let kind = FileType::from_std(meta.file_type()).ok_or(nix::errno::Errno::EIO)?;
    Ok(FileAttr {
        ino: INodeNo(inode),
        size: meta.size(),
        blocks: meta.blocks(),
        atime: meta.accessed()?,
        mtime: meta.modified()?,
        ctime: SystemTime::UNIX_EPOCH
            + Duration::new(meta.ctime().unsigned_abs(), meta.ctime_nsec().unsigned_abs() as u32),
        crtime: SystemTime::UNIX_EPOCH,
        kind,
        perm: (meta.mode() & 0o7777) as u16,
        nlink: meta.nlink() as u32,
        uid: meta.uid(),
        gid: meta.gid(),
        rdev: meta.rdev() as u32,
        blksize: meta.blksize() as u32,
        flags: 0,
    })
}

/// Makes the requesting process' user and group the owner of a new file.
fn set_owner(path: &Path, request: &Request) -> io::Result<()> {
    std::os::unix::fs::lchown(path, Some(request.uid()), Some(request.gid()))
}

fn options(flags: OpenFlags) -> OpenOptions {
    let mut options = OpenOptions::new();
    let mode = flags.acc_mode();
    options.read(mode != OpenAccMode::O_WRONLY).write(mode != OpenAccMode::O_RDONLY);
    options
}

fn entry(reply: ReplyEntry, found: Result<FileAttr, Errno>) {
    match found {
        Ok(attr) => reply.entry(&NO_CACHE, &attr, Generation(0)),
        Err(e) => reply.error(e),
    }
}

fn empty(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e),
    }
}

impl Filesystem for Disk {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(reply, self.act(|| self.find(&self.path(parent)?.join(name))));
    }

    fn forget(&self, _: &Request, inode: INodeNo, times: u64) {
        self.forget_inode(inode, times);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.act(|| self.attributes(inode)) {
            Ok(attr) => reply.attr(&NO_CACHE, &attr),
            Err(e) => reply.error(e),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        open: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let time = |time: TimeOrNow| match time {
            TimeOrNow::SpecificTime(time) => time,
            TimeOrNow::Now => SystemTime::now(),
        };
        let done = self.change(request, || {
            let path = self.path(inode)?;
            if let Some(mode) = mode {
                std::fs::set_permissions(&path, Permissions::from_mode(mode & 0o7777))?;
            }
            if uid.is_some() || gid.is_some() {
                std::os::unix::fs::chown(&path, uid, gid)?;
            }
            match (size, open) {
                (Some(size), Some(open)) => self.file(open)?.set_len(size)?,
                (Some(size), None) => OpenOptions::new().write(true).open(&path)?.set_len(size)?,
                (None, _) => {}
            }
            if atime.is_some() || mtime.is_some() {
                let mut times = FileTimes::new();
                times = atime.map_or(times, |t| times.set_accessed(time(t)));
                times = mtime.map_or(times, |t| times.set_modified(time(t)));
                File::open(&path)?.set_times(times)?;
            }
            self.attributes(inode)
        });
        match done {
            Ok(attr) => reply.attr(&NO_CACHE, &attr),
            Err(e) => reply.error(e),
        }
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        match self.act(|| Ok(readlinkat(&*self.inode(inode)?, "")?)) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(e) => reply.error(e),
        }
    }

    fn mknod(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, rdev: u32, reply: ReplyEntry) {
        let created = self.change(request, || {
            let path = self.path(parent)?.join(name);
            mknod(&path, SFlag::from_bits_truncate(mode), Mode::from_bits_truncate(mode), rdev.into())?;
            set_owner(&path, request)?;
            self.find(&path)
        });
        entry(reply, created);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        let created = self.change(request, || {
            let path = self.path(parent)?.join(name);
            DirBuilder::new().mode(mode).create(&path)?;
            set_owner(&path, request)?;
            self.find(&path)
        });
        entry(reply, created);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.change(request, || std::fs::remove_file(self.path(parent)?.join(name))));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.change(request, || std::fs::remove_dir(self.path(parent)?.join(name))));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let created = self.change(request, || {
            let path = self.path(parent)?.join(name);
            std::os::unix::fs::symlink(target, &path)?;
            set_owner(&path, request)?;
            self.find(&path)
        });
        entry(reply, created);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let done = self
            .change(request, || std::fs::rename(self.path(parent)?.join(name), self.path(new_parent)?.join(new_name)));
        empty(reply, done);
    }

    fn link(&self, request: &Request, inode: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let created = self.change(request, || {
            let (from, path) = (self.path(inode)?, self.path(parent)?.join(name));
            linkat(nix::fcntl::AT_FDCWD, &from, nix::fcntl::AT_FDCWD, &path, AtFlags::AT_SYMLINK_FOLLOW)?;
            self.find(&path)
        });
        entry(reply, created);
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.act(|| options(flags).open(self.path(inode)?)) {
            Ok(file) => reply.opened(self.add_open(Open::File(Arc::new(file))), FopenFlags::FOPEN_DIRECT_IO),
            Err(e) => reply.error(e),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let created = self.change(request, || {
            let path = self.path(parent)?.join(name);
            let wanted = options(OpenFlags(flags));
            // Opened for writing even if only a read was requested: creating a file needs it.
            let file = match wanted.clone().write(true).create_new(true).mode(mode).open(&path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && flags & OFlag::O_EXCL.bits() == 0 => {
                    wanted.open(&path)?
                }
                created => {
                    let created = created?;
                    created.set_permissions(Permissions::from_mode(mode & 0o7777))?;
                    set_owner(&path, request)?;
                    created
                }
            };
            Ok((self.find(&path)?, file))
        });
        match created {
            Ok((attr, file)) => {
                let open = self.add_open(Open::File(Arc::new(file)));
                reply.created(&NO_CACHE, &attr, Generation(0), open, FopenFlags::FOPEN_DIRECT_IO);
            }
            Err(e) => reply.error(e),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        open: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.act(|| {
            let mut buffer = vec![0; size as usize];
            let length = self.file(open)?.read_at(&mut buffer, offset)?;
            buffer.truncate(length);
            Ok(buffer)
        });
        match read {
            Ok(data) => reply.data(&data),
            Err(e) => reply.error(e),
        }
    }

    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        open: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.change(request, || self.file(open)?.write_all_at(data, offset)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(e) => reply.error(e),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        empty(reply, self.act(|| Ok(())));
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(reply, self.act(|| Ok(())));
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        open: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.table().open.remove(&open.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let listed = self.act(|| {
            let dot = |name: &[u8]| (inode.0, FileType::Directory, name.to_vec());
            let mut all = vec![dot(b"."), dot(b"..")];
            for entry in std::fs::read_dir(self.path(inode)?)? {
                let entry = entry?;
                let kind = FileType::from_std(entry.file_type()?).unwrap_or(FileType::RegularFile);
                all.push((std::os::unix::fs::DirEntryExt::ino(&entry), kind, entry.file_name().as_bytes().to_vec()));
            }
            Ok(all)
        });
        match listed {
            Ok(all) => reply.opened(self.add_open(Open::Directory(Arc::new(all))), FopenFlags::empty()),
            Err(e) => reply.error(e),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, open: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listed = self.act(|| match self.table().open.get(&open.0) {
            Some(Open::Directory(all)) => Ok(all.clone()),
            _ => Err(nix::errno::Errno::EBADF.into()),
        });
        let all = match listed {
            Ok(all) => all,
            Err(e) => return reply.error(e),
        };
        for (next, (inode, kind, name)) in (1..).zip(all.iter()).skip(offset as usize) {
            if reply.add(INodeNo(*inode), next, *kind, OsStr::from_bytes(name)) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, open: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.table().open.remove(&open.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(reply, self.act(|| Ok(())));
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.act(|| Ok(fstatvfs(&*self.inode(INodeNo::ROOT)?)?)) {
            Ok(s) => reply.statfs(
                s.blocks(),
                s.blocks_free(),
                s.blocks_available(),
                s.files(),
                s.files_free(),
                s.block_size() as u32,
                s.name_max() as u32,
                s.fragment_size() as u32,
            ),
            Err(e) => reply.error(e),
        }
    }
}
