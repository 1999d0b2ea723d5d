//! `stead place`: selects one of its three forms.

use std::io::{self, IsTerminal};

use crate::args::PlaceArgs;
use crate::commands::{place_batch, place_cases, place_pod};
use crate::output::{Hinted, Outcome};
use crate::scheduler;

pub(crate) fn run(args: PlaceArgs) -> anyhow::Result<Outcome> {
    if let Some(pod) = &args.pod {
        return place_pod::run(pod, &args.source, args.output);
    }
    if let Some(batch) = &args.batch {
        return place_batch::run(batch);
    }
    if args.cases.is_none() && io::stdin().is_terminal() {
        return Err(Hinted {
            message: "nothing to place".into(),
            hint: "give a pod with -f FILE, or a file of cases as argument or on standard input".into(),
        }
        .into());
    }
    let control_plane = &args.source.control_plane;
    let rules = place_cases::Rules {
        version: control_plane.kubernetes.map(|version| version.used).unwrap_or_default(),
        scheduler_config: scheduler::read(control_plane.scheduler_config.as_deref())?,
    };
    place_cases::run(args.cases.as_deref(), args.fixes, &rules)
}
