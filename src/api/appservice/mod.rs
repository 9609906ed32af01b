//! Group `batch.schwarzeni.github.com`, that of a kubebuilder tutorial.

pub mod v1alpha1;
