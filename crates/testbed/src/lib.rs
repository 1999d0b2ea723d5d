//! A real Kubernetes control plane on loopback, with stand-in nodes, for tests.
