//! Reads a live cluster through its API, once and with read rights only.
