//! The recipes that are part of the program, as they stand in `recipes/`.

/// A recipe that needs no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shipped {
    /// What users call it: its path under `recipes/`, without the ending.
    pub name: &'static str,
    /// The TOML.
    pub text: &'static str,
}

macro_rules! shipped {
    ($folder:literal: $($name:literal),+ $(,)?) => {
        &[$( Shipped {
            name: $name,
            text: include_str!(concat!("../../../", $folder, $name, ".toml")),
        } ),+]
    };
}

/// All of them, in the order `scalerl recipe list` shows.
pub const RECIPES: &[Shipped] = shipped!["recipes/":
    "scalerl",
    "quickstart",
    "first-run",
    "episodes",
    "minimax-m1",
    "magistral",
    "dapo-qwen2.5",
    "grpo-deepseek",
    "gspo",
    "dr-grpo",
    "small",
    "leave-one-out/ppo-off-policy",
    "leave-one-out/dapo-loss",
    "leave-one-out/bf16-head",
    "leave-one-out/sample-average",
    "leave-one-out/group-normalisation",
    "leave-one-out/length-penalty",
    "leave-one-out/no-zero-variance-filter",
    "leave-one-out/uniform-sampling",
];

/// Recipes to begin from, which name data of the user's own.
pub const EXAMPLES: &[Shipped] = shipped!["": "examples/gsm8k", "examples/gsm8k-python"];

/// The shipped recipe or example of that name.
pub fn find(name: &str) -> Option<&'static Shipped> {
    RECIPES.iter().chain(EXAMPLES).find(|recipe| recipe.name == name)
}
