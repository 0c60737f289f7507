//! Reading JSON files, and typed access to the keys of an object, with errors that name file and key.
//!
//! Model folders come from many writers: a key may be absent, `null`, or of another type. Absent
//! and `null` mean the same here; another type is an error and never a default.

use std::path::Path;

use scalerl_files::DOCUMENT;
use serde_json::{Map, Value};

use crate::error::LoadError;

/// Of one dimension of a tensor, and beyond any model's: vocabularies have less than a million
/// tokens.
const LARGEST_SIZE: i64 = 1 << 24;

/// Reads a JSON file.
pub(crate) fn read(path: &Path) -> Result<Value, LoadError> {
    let bytes = scalerl_files::read(path, DOCUMENT).map_err(LoadError::io(path))?;
    serde_json::from_slice(&bytes)
        .map_err(|source| LoadError::Json { path: path.to_path_buf(), source })
}

/// Reads a JSON file that need not exist.
pub(crate) fn read_if_there(path: &Path) -> Result<Option<Value>, LoadError> {
    match read(path) {
        Ok(value) => Ok(Some(value)),
        Err(LoadError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The keys of one JSON object of the file `path`.
#[derive(Debug, Clone)]
pub(crate) struct Keys<'a> {
    map: &'a Map<String, Value>,
    path: &'a Path,
}

impl<'a> Keys<'a> {
    pub(crate) fn new(map: &'a Map<String, Value>, path: &'a Path) -> Self {
        Self { map, path }
    }

    pub(crate) fn path(&self) -> &Path {
        self.path
    }

    pub(crate) fn bad(
        &self,
        key: &'static str,
        found: impl std::fmt::Display,
        problem: impl Into<String>,
    ) -> LoadError {
        let (path, found) = (self.path.to_path_buf(), format!("{found}"));
        LoadError::BadValue { path, key, found, problem: problem.into() }
    }

    fn get(&self, key: &'static str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Whether the key has a value.
    pub(crate) fn is_there(&self, key: &'static str) -> bool {
        self.get(key).is_some()
    }

    /// Whether the key is there and says `null`, for the few keys where that is a value.
    pub(crate) fn is_null(&self, key: &'static str) -> bool {
        self.map.get(key).is_some_and(Value::is_null)
    }

    fn need<T>(&self, key: &'static str, value: Option<T>) -> Result<T, LoadError> {
        value.ok_or_else(|| LoadError::MissingKey { path: self.path.to_path_buf(), key })
    }

    /// A whole number from 1 to `most`.
    fn count_or_none(&self, key: &'static str, most: i64) -> Result<Option<i64>, LoadError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_i64().filter(|count| (1..=most).contains(count)) {
            Some(count) => Ok(Some(count)),
            None => Err(self.bad(key, value, format!("a whole number from 1 to {most} is needed"))),
        }
    }

    /// The size of a dimension.
    pub(crate) fn count(&self, key: &'static str) -> Result<i64, LoadError> {
        self.need(key, self.count_or_none(key, LARGEST_SIZE)?)
    }

    pub(crate) fn count_or(&self, key: &'static str, default: i64) -> Result<i64, LoadError> {
        Ok(self.count_or_none(key, LARGEST_SIZE)?.unwrap_or(default))
    }

    /// A number of positions, for which nothing is ever made.
    pub(crate) fn positions_or(&self, key: &'static str, default: i64) -> Result<i64, LoadError> {
        Ok(self.positions_or_none(key)?.unwrap_or(default))
    }

    pub(crate) fn positions_or_none(&self, key: &'static str) -> Result<Option<i64>, LoadError> {
        self.count_or_none(key, i64::from(i32::MAX))
    }

    fn number_or_none(&self, key: &'static str) -> Result<Option<f64>, LoadError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_f64().filter(|number| number.is_finite()) {
            Some(number) => Ok(Some(number)),
            None => Err(self.bad(key, value, "a number is needed")),
        }
    }

    pub(crate) fn number(&self, key: &'static str) -> Result<f64, LoadError> {
        self.need(key, self.number_or_none(key)?)
    }

    pub(crate) fn number_or(&self, key: &'static str, default: f64) -> Result<f64, LoadError> {
        Ok(self.number_or_none(key)?.unwrap_or(default))
    }

    /// A number above 0.
    pub(crate) fn positive(&self, key: &'static str) -> Result<f64, LoadError> {
        let found = self.number(key)?;
        if found > 0.0 {
            Ok(found)
        } else {
            Err(self.bad(key, found, "a number above 0 is needed"))
        }
    }

    pub(crate) fn positive_or(&self, key: &'static str, default: f64) -> Result<f64, LoadError> {
        if self.is_there(key) { self.positive(key) } else { Ok(default) }
    }

    pub(crate) fn flag_or(&self, key: &'static str, default: bool) -> Result<bool, LoadError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.bad(key, value, "true or false is needed"))
    }

    pub(crate) fn text_or_none(&self, key: &'static str) -> Result<Option<&'a str>, LoadError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.bad(key, value, "a string is needed"))
    }

    pub(crate) fn text(&self, key: &'static str) -> Result<&'a str, LoadError> {
        self.need(key, self.text_or_none(key)?)
    }

    /// A list of strings.
    pub(crate) fn texts_or_none(
        &self,
        key: &'static str,
    ) -> Result<Option<Vec<&'a str>>, LoadError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let parsed = value
            .as_array()
            .and_then(|items| items.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        parsed.map(Some).ok_or_else(|| self.bad(key, value, "a list of strings is needed"))
    }

    pub(crate) fn object_or_none(&self, key: &'static str) -> Result<Option<Self>, LoadError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_object() {
            Some(map) => Ok(Some(Self { map, path: self.path })),
            None => Err(self.bad(key, value, "an object is needed")),
        }
    }

    /// A list of whole numbers, zero or more each.
    pub(crate) fn indices_or_none(&self, key: &'static str) -> Result<Option<Vec<i64>>, LoadError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let parsed = value.as_array().and_then(|items| {
            items.iter().map(|item| item.as_i64().filter(|i| *i >= 0)).collect::<Option<Vec<_>>>()
        });
        parsed.map(Some).ok_or_else(|| self.bad(key, value, "a list of whole numbers is needed"))
    }
}
