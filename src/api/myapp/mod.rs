//! Group `myapp.timd.cn`, that of a kubebuilder tutorial.

pub mod v1;
