//! The two macros that declare the schema: [`section!`] for tables, [`choice!`] for alternatives.
//!
//! ```text
//! section! {
//!     /// What the table is about.
//!     pub struct Sampling {
//!         /// What the key means. Source of the default.
//!         temperature: f64 = 1.0, Rule::AtLeast(0.0);
//!     }
//! }
//! choice! {
//!     /// What is chosen. The first variant is the default.
//!     pub enum Surrogate {
//!         /// What this alternative does.
//!         "cispo" Cispo { /// The cap.
//!                         cap: f64 = 5.0, Rule::AtLeast(1.0); },
//!         /// No ratio.
//!         "none" None,
//!     }
//! }
//! ```

/// The doc lines of a declaration as one paragraph.
pub(crate) fn paragraph(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

macro_rules! section {
    (
        $(#[doc = $doc:literal])+
        pub struct $name:ident {
            $( $(#[doc = $field_doc:literal])+ $field:ident : $type:ty = $default:expr $(, $rule:expr)? ; )*
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq, serde::Serialize)]
        pub struct $name {
            $( $(#[doc = $field_doc])+ pub $field: $type, )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $field: $default, )* }
            }
        }

        impl $crate::setting::Setting for $name {
            fn read(node: &$crate::node::Node, key: &str) -> Result<Self, $crate::RecipeError> {
                if node.entries().is_none() {
                    return Err($crate::setting::wrong_type::<Self>(node, key));
                }
                $crate::setting::check_keys(node, key, &[$( stringify!($field) ),*])?;
                Ok(Self { $(
                    $field: $crate::setting::read_field(
                        node, key, stringify!($field), || $default, declare!(@rule $($rule)?),
                    )?,
                )* })
            }
            fn written(&self) -> $crate::node::Node {
                let entries = vec![$(
                    (stringify!($field).to_string(), $crate::setting::Setting::written(&self.$field)),
                )*];
                $crate::node::Node::default_of($crate::node::Value::Table(entries))
            }
            fn kind() -> String {
                "a table".into()
            }
            fn keys(prefix: &str) -> Vec<$crate::setting::KeyEntry> {
                let mut keys = Vec::new();
                $( declare!(@key keys, prefix, $field, $type, $default, [$($field_doc),+] $(, $rule)?); )*
                keys
            }
        }
    };
}

macro_rules! choice {
    (
        $(#[doc = $doc:literal])+
        pub enum $name:ident {
            $( $(#[doc = $variant_doc:literal])+ $tag:literal $variant:ident
               $({ $( $(#[doc = $field_doc:literal])+ $field:ident : $type:ty = $default:expr $(, $rule:expr)? ; )* })?
            ),+ $(,)?
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq)]
        pub enum $name {
            $( $(#[doc = $variant_doc])+
               $variant $({ $( $(#[doc = $field_doc])+ $field: $type, )* })?, )+
        }

        impl $name {
            /// Every alternative, spelled as in a file, the default first.
            pub const NAMES: &'static [&'static str] = &[$( $tag ),+];

            /// The chosen alternative, spelled as in a file.
            pub fn name(&self) -> &'static str {
                match self { $( Self::$variant { .. } => $tag, )+ }
            }

            /// The keys of each alternative, in the order of their names.
            const KEYS: &'static [&'static [&'static str]] =
                &[$( &[$($( stringify!($field) ),*)?] ),+];

            /// Whether any alternative has keys: then all can be written as tables.
            fn has_keys() -> bool {
                Self::KEYS.iter().any(|keys| !keys.is_empty())
            }

            /// The alternative of that name with its own defaults.
            fn of(name: &str) -> Option<Self> {
                match name {
                    $( $tag => Some(Self::$variant $({ $( $field: $default, )* })?), )+
                    _ => None,
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::of(Self::NAMES[0]).expect("the first name is one of the names")
            }
        }

        /// A table with `type` where some alternative has keys, a bare word otherwise.
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap as _;
                if !Self::has_keys() {
                    return serializer.serialize_str(self.name());
                }
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("type", self.name())?;
                match self {
                    $( Self::$variant $({ $( $field, )* })? => { $($(
                        map.serialize_entry(stringify!($field), $field)?;
                    )*)? } )+
                }
                map.end()
            }
        }

        impl $crate::setting::Setting for $name {
            fn read(node: &$crate::node::Node, key: &str) -> Result<Self, $crate::RecipeError> {
                let tag = match (node.text(), node.get("type")) {
                    (Some(_), _) => node,
                    (None, Some(tag)) if tag.text().is_some() => tag,
                    _ => return Err($crate::setting::wrong_type::<Self>(node, key)),
                };
                match tag.text().unwrap_or_default() {
                    $( $tag => {
                        $crate::setting::check_keys(node, key, &["type" $($(, stringify!($field))*)?])?;
                        Ok(Self::$variant $({ $(
                            $field: $crate::setting::read_field(
                                node, key, stringify!($field), || $default, declare!(@rule $($rule)?),
                            )?,
                        )* })?)
                    } )+
                    other => Err($crate::RecipeError::UnknownChoice {
                        place: tag.place.clone(),
                        key: key.into(),
                        found: other.into(),
                        nearest: $crate::nearest::nearest(other, Self::NAMES.iter().copied())
                            .map(Into::into),
                        known: Self::NAMES.iter().map(ToString::to_string).collect(),
                    }),
                }
            }
            fn written(&self) -> $crate::node::Node {
                use $crate::node::{Node, Value};
                let tag = Node::default_of(Value::Text(self.name().into()));
                let entries: Vec<(String, Node)> = match self {
                    $( Self::$variant $({ $( $field, )* })? => vec![$($(
                        (stringify!($field).to_string(), $crate::setting::Setting::written($field)),
                    )*)?], )+
                };
                if entries.is_empty() {
                    return tag;
                }
                let entries = std::iter::once(("type".into(), tag)).chain(entries).collect();
                Node::default_of(Value::Table(entries))
            }
            fn kind() -> String {
                let names: Vec<_> = Self::NAMES.iter().map(|name| format!("\"{name}\"")).collect();
                let long = if Self::has_keys() { " (or a table with that `type` and its keys)" } else { "" };
                format!("one of {}{long}", names.join(", "))
            }
            fn keys(prefix: &str) -> Vec<$crate::setting::KeyEntry> {
                let mut keys = Vec::new();
                $(
                    keys.push($crate::setting::KeyEntry {
                        key: format!("{prefix} = \"{}\"", $tag),
                        kind: String::new(),
                        default: None,
                        rule: String::new(),
                        meaning: $crate::declare::paragraph(&[$($variant_doc),+]),
                    });
                    $($( declare!(@key keys, prefix, $field, $type, $default, [$($field_doc),+] $(, $rule)?); )*)?
                )+
                keys
            }
        }
    };
}

macro_rules! declare {
    (@rule) => { None };
    (@rule $rule:expr) => { Some($rule) };
    (@key $keys:ident, $prefix:ident, $field:ident, $type:ty, $default:expr, [$($doc:literal),+] $(, $rule:expr)?) => {{
        let key = $crate::setting::join($prefix, stringify!($field));
        let default: $type = $default;
        let rule: Option<$crate::setting::Rule> = declare!(@rule $($rule)?);
        let kind = <$type as $crate::setting::Setting>::kind();
        $keys.push($crate::setting::KeyEntry {
            key: key.clone(),
            default: (kind != "a table")
                .then(|| $crate::text::inline(&$crate::setting::Setting::written(&default))),
            kind,
            rule: rule.map(|rule| rule.to_string()).unwrap_or_default(),
            meaning: $crate::declare::paragraph(&[$($doc),+]),
        });
        $keys.extend(<$type as $crate::setting::Setting>::keys(&key));
    }};
}

pub(crate) use {choice, declare, section};
