//! Group `myapp.tangx.in`, that of a kubebuilder tutorial.

pub mod v1;
