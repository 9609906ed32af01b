//! Promises of the server as a whole.
