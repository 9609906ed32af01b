//! Group `myapp.timd.cn`, from a kubebuilder tutorial.

pub mod v1;
