//! What Stead installs: definitions, policies, rights, the operator's own workload.
