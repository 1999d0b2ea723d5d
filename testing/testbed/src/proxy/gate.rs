//! A gate that closes after a number of writes. Every request waits until it is open.

use tokio::sync::watch;

#[derive(Default)]
pub(super) struct Gate {
    state: watch::Sender<State>,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// The number of successful writes so far.
    writes: u64,
    /// The number of writes after which the gate closes.
    limit: Option<u64>,
}

impl State {
    fn is_closed(self) -> bool {
        self.limit.is_some_and(|limit| self.writes >= limit)
    }
}

impl Gate {
    /// Sets the total number of writes after which the gate closes; none opens it.
    pub(super) fn close_after(&self, limit: Option<u64>) {
        self.state.send_modify(|state| state.limit = limit);
    }

    /// Updates the number of successful writes so far.
    pub(super) fn set_writes(&self, writes: u64) {
        self.state.send_modify(|state| state.writes = state.writes.max(writes));
    }

    /// Waits until the gate is open.
    pub(super) async fn wait_until_open(&self) {
        self.wait_until(false).await;
    }

    /// Waits until the gate is closed.
    pub(super) async fn wait_until_closed(&self) {
        self.wait_until(true).await;
    }

    async fn wait_until(&self, closed: bool) {
        // It cannot fail: the sender lives as long as this value.
        let _ = self.state.subscribe().wait_for(|state| state.is_closed() == closed).await;
    }
}
