//! Access to disks that may hang.
//!
//! A read from a disk that hangs never returns, and no signal interrupts it. So each access runs on its own thread, and
//! the caller stops waiting at a deadline. While a thread has not returned, no other one is started for the same disk:
//! there is at most one per disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// The stack size of a thread that accesses a disk.
const STACK: usize = 512 << 10;

/// A disk did not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotAnswering {
    path: PathBuf,
    since: Duration,
}

impl std::fmt::Display for NotAnswering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} has not answered for {} s", self.path.display(), self.since.as_secs())
    }
}

impl std::error::Error for NotAnswering {}

/// The disks that are in use, and since when.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disks {
    busy: Arc<Mutex<BTreeMap<PathBuf, Instant>>>,
}

impl Disks {
    /// Runs `work` on the disk at `path` with a time limit. If it takes longer, it continues in the background, and
    /// nothing else runs on this disk until it has returned.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        path: &Path,
        limit: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotAnswering> {
        let guard = DiskGuard::acquire(&self.busy, path)?;
        let (done, result) = oneshot::channel();
        let thread = std::thread::Builder::new().name("disk".to_owned()).stack_size(STACK).spawn(move || {
            let found = work();
            // The disk is released before the result is sent: the caller may use it again at once.
            drop(guard);
            // The caller may have stopped waiting.
            let _ = done.send(found);
        });
        let not_answering = || NotAnswering { path: path.to_owned(), since: self.busy_for(path) };
        thread.map_err(|_| not_answering())?;
        match tokio::time::timeout(limit, result).await {
            Ok(Ok(found)) => Ok(found),
            // The thread panicked, or it has not returned.
            Ok(Err(_)) | Err(_) => Err(not_answering()),
        }
    }

    /// Like `run`, but first waits until the disk is free.
    pub(crate) async fn run_when_free<T: Send + 'static>(
        &self,
        path: &Path,
        limit: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotAnswering> {
        let end = tokio::time::Instant::now() + limit;
        while let Err(busy) = DiskGuard::acquire(&self.busy, path).map(drop) {
            if tokio::time::Instant::now() >= end {
                return Err(busy);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.run(path, limit, work).await
    }

    fn busy_for(&self, path: &Path) -> Duration {
        let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.get(path).map_or(Duration::ZERO, Instant::elapsed)
    }
}

/// Exclusive use of a disk, until dropped.
struct DiskGuard {
    busy: Arc<Mutex<BTreeMap<PathBuf, Instant>>>,
    path: PathBuf,
}

impl DiskGuard {
    fn acquire(busy: &Arc<Mutex<BTreeMap<PathBuf, Instant>>>, path: &Path) -> Result<DiskGuard, NotAnswering> {
        let mut all = busy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(since) = all.get(path) {
            return Err(NotAnswering { path: path.to_owned(), since: since.elapsed() });
        }
        all.insert(path.to_owned(), Instant::now());
        Ok(DiskGuard { busy: busy.clone(), path: path.to_owned() })
    }
}

impl Drop for DiskGuard {
    fn drop(&mut self) {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.path);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    const SOON: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_read_that_never_returns_blocks_nothing_and_is_not_repeated() {
        let disks = Disks::default();
        let (hung, other) = (Path::new("/data/hung"), Path::new("/data/other"));
        let (release, hang) = mpsc::channel::<()>();
        let started = Arc::new(AtomicUsize::new(0));
        let count = started.clone();
        let first = disks.run(hung, SOON, move || {
            count.fetch_add(1, Ordering::SeqCst);
            // Returns only when the test lets it.
            let _ = hang.recv();
        });
        assert!(first.await.unwrap_err().to_string().starts_with("/data/hung has not answered for "));
        // The runtime has one thread, and it is not blocked; other disks answer; no second thread is started for the
        // hung disk.
        assert_eq!(disks.run(other, LONG, || 7).await, Ok(7));
        for _ in 0..100 {
            let count = started.clone();
            let again = disks.run(hung, LONG, move || count.fetch_add(1, Ordering::SeqCst));
            assert!(again.await.is_err());
        }
        assert_eq!(started.load(Ordering::SeqCst), 1);
        release.send(()).unwrap();
        assert_eq!(disks.run_when_free(hung, LONG, || 8).await, Ok(8));
        assert_eq!(disks.run(hung, LONG, || 9).await, Ok(9));
    }

    #[tokio::test]
    async fn work_that_panics_frees_its_disk() {
        let disks = Disks::default();
        let path = Path::new("/data/b");
        assert!(disks.run(path, LONG, || panic!("on purpose")).await.is_err());
        assert_eq!(disks.run(path, LONG, || 1).await, Ok(1));
    }
}
