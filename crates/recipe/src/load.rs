//! From files and `--set` to a recipe that can be used.
//!
//! Layers, each over the one before: built-in defaults, the files left to right (a file's base,
//! named by `extends`, comes right before it; a base that two files share is laid once, so that the
//! second file changes the first and no more), the overrides. The merged tree is read once into a
//! typed [`Recipe`], then checked across sections.

use std::{
    ops::Deref,
    path::{Path, PathBuf},
};

use crate::{
    Recipe, RecipeError,
    check::check,
    error::Origin,
    kept,
    nearest::nearest,
    node::{Node, Value},
    setting::Setting as _,
    shipped,
    text::document,
};

/// Follows the name of a recipe that is no file, in messages.
pub(crate) const SHIPPED_MARK: &str = " (shipped)";

/// Of one recipe, which has kilobytes.
const LARGEST_FILE: u64 = 1 << 20;

/// No key has more names than five.
const DEEPEST_KEY: usize = 16;

/// Where a layer comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A recipe that is part of the program.
    Shipped(
        /// As `scalerl recipe list` names it.
        String,
    ),
    /// A file.
    File(
        /// Its path.
        PathBuf,
    ),
    /// The recipe that a run keeps in its folder, perhaps one of an earlier release.
    Kept {
        /// What messages call it.
        name: String,
        /// The TOML.
        text: String,
    },
    /// A text that is in no file.
    Text {
        /// What messages call it.
        name: String,
        /// The TOML.
        text: String,
    },
}

impl Source {
    /// What a user named: a shipped recipe, or a path.
    pub fn named(name: &str) -> Self {
        let is_path = Path::new(name).extension().is_some_and(|ending| ending == "toml");
        if !is_path && (shipped::find(name).is_some() || !Path::new(name).exists()) {
            Self::Shipped(name.into())
        } else {
            Self::File(name.into())
        }
    }

    fn label(&self) -> String {
        match self {
            Self::Shipped(name) => format!("{name}{SHIPPED_MARK}"),
            Self::File(path) => path.display().to_string(),
            Self::Text { name, .. } | Self::Kept { name, .. } => name.clone(),
        }
    }

    fn read(&self) -> Result<String, RecipeError> {
        match self {
            Self::Text { text, .. } | Self::Kept { text, .. } => Ok(text.clone()),
            Self::File(path) => scalerl_files::read_input_to_string(path, LARGEST_FILE)
                .map_err(|source| RecipeError::Unreadable { path: path.clone(), source }),
            Self::Shipped(name) => {
                let all = || shipped::RECIPES.iter().chain(shipped::EXAMPLES);
                let names = || all().map(|recipe| recipe.name);
                shipped::find(name).map(|recipe| recipe.text.into()).ok_or_else(|| {
                    RecipeError::UnknownRecipe {
                        name: name.clone(),
                        nearest: nearest(name, names()).map(Into::into),
                        known: names().map(Into::into).collect(),
                    }
                })
            }
        }
    }

    /// What `extends = name` in this source means: a shipped recipe, or a file beside this one.
    fn base(&self, name: &str) -> Self {
        match (Self::named(name), self) {
            (Self::File(path), Self::File(own)) => {
                Self::File(own.parent().unwrap_or(Path::new("")).join(path))
            }
            (base, _) => base,
        }
    }
}

/// One `--set key=value`.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    keys: Vec<String>,
    value: Node,
}

impl Override {
    /// Reads `a.b=c`. The value is TOML; what is not TOML is taken as text, so that most texts
    /// need no quotes.
    pub fn parse(text: &str) -> Result<Self, RecipeError> {
        let bad =
            |reason: &str| RecipeError::BadOverride { text: text.into(), reason: reason.into() };
        let (key, value) = text.split_once('=').ok_or_else(|| bad("there is no `=`"))?;
        let keys: Vec<String> = key.trim().split('.').map(|part| part.trim().into()).collect();
        if keys.iter().any(String::is_empty) {
            return Err(bad("the key has an empty part"));
        }
        if keys.len() > DEEPEST_KEY {
            return Err(bad("there is no key with so many parts"));
        }
        let mut value = Node::parse_value(value.trim(), &Origin::Set(text.into()));
        if let Value::Moment(moment) = value.value {
            value.value = Value::Text(moment);
        }
        Ok(Self { keys, value })
    }

    fn into_layer(self) -> Node {
        let place = self.value.place.clone();
        self.keys.into_iter().rev().fold(self.value, |inner, key| {
            Node::new(place.clone(), Value::Table(vec![(key, inner)]))
        })
    }
}

/// A recipe that has passed every check, with the place each value comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    recipe: Recipe,
    layers: Node,
}

impl Deref for Resolved {
    type Target = Recipe;
    fn deref(&self) -> &Recipe {
        &self.recipe
    }
}

impl Resolved {
    /// The whole recipe as TOML, every key written out: what a run keeps in its folder. Loading
    /// it again gives the same recipe.
    pub fn to_toml(&self) -> String {
        document(&self.tree(), &|_| None)
    }

    /// The same, with the place of each value that is not a default as a comment.
    pub fn to_annotated_toml(&self) -> String {
        document(&self.tree(), &|key| match self.place(key) {
            Origin::Default => None,
            place => Some(place),
        })
    }

    /// Where the value of a dotted key was set.
    pub fn place(&self, key: &str) -> Origin {
        self.layers.find(key).map(|node| node.place.clone()).unwrap_or_default()
    }

    pub(crate) fn tree(&self) -> Node {
        self.recipe.written()
    }
}

impl Recipe {
    /// Lays sources and overrides over the defaults, reads the result and checks it.
    pub fn load(sources: &[Source], overrides: &[Override]) -> Result<Resolved, RecipeError> {
        let mut layers = Self::default().written();
        let mut laid = Vec::new();
        for source in sources {
            for (label, layer) in with_bases(source, &mut Vec::new())? {
                // A base that an earlier file stands on already would undo that file.
                if !laid.contains(&label) || label == source.label() {
                    layers.merge(layer);
                }
                laid.push(label);
            }
        }
        for change in overrides {
            layers.merge(change.clone().into_layer());
        }
        let recipe = Self::read(&layers, "").map_err(look_further)?;
        check(&recipe, &layers)?;
        Ok(Resolved { recipe, layers })
    }
}

/// A source's layers with what messages call them, its bases first.
fn with_bases(
    source: &Source,
    chain: &mut Vec<String>,
) -> Result<Vec<(String, Node)>, RecipeError> {
    let label = source.label();
    let is_loop = chain.contains(&label);
    chain.push(label.clone());
    if is_loop {
        return Err(RecipeError::ExtendsLoop { chain: chain.clone() });
    }
    let mut layer = Node::parse(&label, &source.read()?)?;
    if matches!(source, Source::Kept { .. }) {
        kept::translate(&mut layer);
    }
    let Value::Table(entries) = &mut layer.value else { unreachable!("a document is a table") };
    let Some(position) = entries.iter().position(|(key, _)| key == "extends") else {
        return Ok(vec![(label, layer)]);
    };
    let (key, base) = entries.remove(position);
    let name = String::read(&base, &key)?;
    let mut layers = with_bases(&source.base(&name), chain).map_err(|error| match error {
        RecipeError::UnknownRecipe { name, nearest, known } => RecipeError::UnknownChoice {
            place: base.place.clone(),
            key,
            found: name,
            nearest,
            known,
        },
        error => error,
    })?;
    layers.push((label, layer));
    Ok(layers)
}

/// An unknown key that is like none beside it may be one of another section.
fn look_further(error: RecipeError) -> RecipeError {
    let RecipeError::UnknownKey { place, key, nearest: beside, known } = error else {
        return error;
    };
    if !beside.is_empty() {
        return RecipeError::UnknownKey { place, key, nearest: beside, known };
    }
    let last = key.rsplit('.').next().unwrap_or(&key).to_string();
    let all = Recipe::keys("");
    let plain =
        || all.iter().map(|entry| entry.key.as_str()).filter(|key| !key.contains(['[', '=']));
    let last_of = |key: &str| key.rsplit('.').next().unwrap_or_default().to_string();
    let lasts: Vec<String> = plain().map(last_of).collect();
    let name = nearest(&last, lasts.iter().map(String::as_str));
    let same = plain().filter(|other| Some(last_of(other).as_str()) == name && **other != key);
    let mut found: Vec<String> = same.map(Into::into).collect();
    // A setting of the run is meant more often than the one of its warm-up.
    found.sort_by_key(|key| key.starts_with("warm_up."));
    RecipeError::UnknownKey { place, key, nearest: found, known }
}
