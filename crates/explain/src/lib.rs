//! Why a pod waits, and the ways out that were tried.
