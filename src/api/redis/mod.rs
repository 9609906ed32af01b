//! Group `myapp.tangx.in`, from a kubebuilder tutorial.

pub mod v1;
