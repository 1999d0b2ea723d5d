//! The pods and volumes are released: the replacement pods have to be Ready.

use crate::next_step::NextStep;
use crate::progress;
use crate::record::RecoveryPhase;
use crate::recovery::Recovery;
use crate::refusal::Refusal;

/// Waits until all replacement pods are Ready.
pub(crate) fn wait_for_replacements(recovery: &Recovery<'_>) -> Result<NextStep, Refusal> {
    let waits = progress::replacements_to_start(recovery.view.objects, recovery.record);
    if waits.is_empty() {
        let why = "all replacement pods are Ready; the taint is removed when the node is back";
        return recovery.enter(RecoveryPhase::Recovered, why);
    }
    recovery.wait(waits)
}
