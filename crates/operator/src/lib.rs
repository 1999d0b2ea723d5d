//! Runs the loops on a real cluster: watches, an ordered queue, writes, leader election, metrics.
