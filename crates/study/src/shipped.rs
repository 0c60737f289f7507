//! The studies that are part of the program, as they stand in `recipes/studies/`.

/// A study that needs no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shipped {
    /// What users call it: its file's name without the ending.
    pub name: &'static str,
    /// The TOML.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal),+ $(,)?) => {
        &[$( Shipped {
            name: $name,
            text: include_str!(concat!("../../../recipes/studies/", $name, ".toml")),
        } ),+]
    };
}

/// All of them.
pub const STUDIES: &[Shipped] = shipped![
    "leave-one-out",
    "recipes",
    "batch-size",
    "generation-length",
    "generations-per-prompt",
    "model-size",
    "off-policy",
    "head-precision",
    "math-and-code",
    "smoke",
];

/// The shipped study of that name.
pub fn find(name: &str) -> Option<&'static Shipped> {
    STUDIES.iter().find(|study| study.name == name)
}
