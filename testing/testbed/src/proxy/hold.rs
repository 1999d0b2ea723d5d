//! A gate that closes after a write: every request waits there until it is opened.

use tokio::sync::watch;

/// The gate.
#[derive(Default)]
pub(super) struct Hold {
    state: watch::Sender<State>,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// How many writes were made.
    made: u64,
    /// After how many it closes.
    after: Option<u64>,
}

impl State {
    fn is_closed(self) -> bool {
        self.after.is_some_and(|after| self.made >= after)
    }
}

impl Hold {
    /// It closes once so many writes were made in all.
    pub(super) fn after(&self, after: Option<u64>) {
        self.state.send_modify(|state| state.after = after);
    }

    /// So many writes were made by now.
    pub(super) fn wrote(&self, made: u64) {
        self.state.send_modify(|state| state.made = state.made.max(made));
    }

    /// Waits while it is closed.
    pub(super) async fn passes(&self) {
        self.until(false).await;
    }

    /// Waits until it is closed.
    pub(super) async fn held(&self) {
        self.until(true).await;
    }

    async fn until(&self, closed: bool) {
        // The sender is here as long as this is.
        let _ = self.state.subscribe().wait_for(|state| state.is_closed() == closed).await;
    }
}
