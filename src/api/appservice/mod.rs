//! Group `batch.schwarzeni.github.com`, from a kubebuilder tutorial.

pub mod v1alpha1;
