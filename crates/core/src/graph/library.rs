//! The functions that a graph carries.

use crate::{Result, bail};
use ferroflow_proto::tensorflow::{FunctionDef, FunctionDefLibrary};
use std::collections::HashMap;
use std::sync::Arc;

/// Functions by name.
#[derive(Clone, Default)]
pub struct Library {
    functions: HashMap<String, Arc<FunctionDef>>,
    gradients: HashMap<String, String>,
}

impl Library {
    /// The function with this name.
    pub fn get(&self, name: &str) -> Option<&Arc<FunctionDef>> {
        self.functions.get(name)
    }

    /// The gradient function registered for this function.
    pub fn gradient(&self, name: &str) -> Option<&str> {
        self.gradients.get(name).map(String::as_str)
    }

    /// The number of functions.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Whether there are no functions.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// This library with more functions; a function that exists must be identical.
    pub fn with(&self, more: &FunctionDefLibrary) -> Result<Library> {
        let mut library = self.clone();
        for function in &more.function {
            let Some(signature) = &function.signature else {
                bail!(InvalidArgument, "a function in the library has no signature")
            };
            match library.functions.get(&signature.name) {
                Some(known) if **known == *function => {}
                Some(_) => bail!(
                    InvalidArgument,
                    "Cannot add function '{}' because a different function with the same name already exists.",
                    signature.name
                ),
                None => {
                    library.functions.insert(signature.name.clone(), Arc::new(function.clone()));
                }
            }
        }
        for gradient in &more.gradient {
            library.gradients.insert(gradient.function_name.clone(), gradient.gradient_func.clone());
        }
        Ok(library)
    }

    /// The wire form, by name.
    pub fn to_proto(&self) -> FunctionDefLibrary {
        let mut functions: Vec<_> = self.functions.iter().collect();
        functions.sort_by_key(|(name, _)| *name);
        FunctionDefLibrary {
            function: functions.into_iter().map(|(_, function)| (**function).clone()).collect(),
            ..Default::default()
        }
    }
}
