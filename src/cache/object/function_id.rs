//! Tells whether two functions are the same, so that requests for the same informer can share it.
//!
//! A function or closure without captured values has a type of its own, which identifies it. A function pointer, or a
//! closure that captures something, has a type that other functions have, too: it is never the same as another.
//!
//! # Guarantees
//! - Two function pointers are never taken for one function. (test: `only_functions_with_a_type_of_their_own_are_the_same`)

use std::any::TypeId;

/// The identity of a function, if its type tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FunctionId(Option<TypeId>);

// === impl FunctionId ===

impl FunctionId {
    pub(crate) fn of<F: 'static>(_: &F) -> Self {
        Self((size_of::<F>() == 0).then(TypeId::of::<F>))
    }

    /// Whether both are known to be the same function.
    pub(crate) fn is_same_as(self, other: Self) -> bool {
        self.0.is_some() && self.0 == other.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() {}
    fn two() {}

    #[test]
    fn only_functions_with_a_type_of_their_own_are_the_same() {
        assert!(FunctionId::of(&one).is_same_as(FunctionId::of(&one)));
        assert!(!FunctionId::of(&one).is_same_as(FunctionId::of(&two)));
        let pointers: [fn(); 2] = [one, two];
        let [one, two] = pointers.map(|pointer| FunctionId::of(&pointer));
        assert!(!one.is_same_as(two) && !one.is_same_as(one));
    }
}
