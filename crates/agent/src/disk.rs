//! Reads and writes of disks that may hang.
//!
//! A read of a brick whose disk hangs never returns, and no signal ends it. So each is made on a thread of its own, and
//! whoever waits for it stops waiting at a deadline. While a thread has not returned, no other is started for the same
//! disk: there is at most one for each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// The stack of a thread that reads: it needs little.
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

/// The disks on which work is under way, with the time since when.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disks {
    busy: Arc<Mutex<BTreeMap<PathBuf, Instant>>>,
}

impl Disks {
    /// Does something on the disk at `path`, which may take this long. Where it takes longer, it goes on, and nothing
    /// else is done on this disk until it has returned.
    pub(crate) async fn on<T: Send + 'static>(
        &self,
        path: &Path,
        limit: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotAnswering> {
        let turn = Turn::take(&self.busy, path)?;
        let (done, result) = oneshot::channel();
        let thread = std::thread::Builder::new().name("disk".to_owned()).stack_size(STACK).spawn(move || {
            let found = work();
            // The disk is free again before anybody learns of it: who does may ask again at once.
            drop(turn);
            // Nobody may be waiting any more.
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

    /// The same, with a wait for what is under way on this disk.
    pub(crate) async fn in_turn<T: Send + 'static>(
        &self,
        path: &Path,
        limit: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotAnswering> {
        let end = tokio::time::Instant::now() + limit;
        while let Err(busy) = Turn::take(&self.busy, path).map(drop) {
            if tokio::time::Instant::now() >= end {
                return Err(busy);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.on(path, limit, work).await
    }

    fn busy_for(&self, path: &Path) -> Duration {
        let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.get(path).map_or(Duration::ZERO, Instant::elapsed)
    }
}

/// A disk on which nobody else does anything, until this is dropped.
struct Turn {
    busy: Arc<Mutex<BTreeMap<PathBuf, Instant>>>,
    path: PathBuf,
}

impl Turn {
    fn take(busy: &Arc<Mutex<BTreeMap<PathBuf, Instant>>>, path: &Path) -> Result<Turn, NotAnswering> {
        let mut all = busy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(since) = all.get(path) {
            return Err(NotAnswering { path: path.to_owned(), since: since.elapsed() });
        }
        all.insert(path.to_owned(), Instant::now());
        Ok(Turn { busy: busy.clone(), path: path.to_owned() })
    }
}

impl Drop for Turn {
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
        let first = disks.on(hung, SOON, move || {
            count.fetch_add(1, Ordering::SeqCst);
            // Returns only when the test lets it.
            let _ = hang.recv();
        });
        assert!(first.await.unwrap_err().to_string().starts_with("/data/hung has not answered for "));
        // The runtime has one thread, which goes on; other disks answer; and no second thread is started for this one.
        assert_eq!(disks.on(other, LONG, || 7).await, Ok(7));
        for _ in 0..100 {
            let count = started.clone();
            let again = disks.on(hung, LONG, move || count.fetch_add(1, Ordering::SeqCst));
            assert!(again.await.is_err());
        }
        assert_eq!(started.load(Ordering::SeqCst), 1);
        release.send(()).unwrap();
        assert_eq!(disks.in_turn(hung, LONG, || 8).await, Ok(8));
        assert_eq!(disks.on(hung, LONG, || 9).await, Ok(9));
    }

    #[tokio::test]
    async fn work_that_panics_frees_its_disk() {
        let disks = Disks::default();
        let path = Path::new("/data/b");
        assert!(disks.on(path, LONG, || panic!("on purpose")).await.is_err());
        assert_eq!(disks.on(path, LONG, || 1).await, Ok(1));
    }
}
