//! Writing a figure to a file, in the format that its name says.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::chart::Figure;
use crate::layout::Size;

/// Pixels to a unit in PNG files: sharp in print and on dense screens.
const PNG_SCALE: f64 = 2.0;

/// Why a figure could not be drawn or written.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum DrawError {
    /// The ending of the name is none that we write.
    #[error("{}: cannot tell the format of the figure from this name", path.display())]
    UnknownFormat { path: PathBuf },
    /// The file could not be written.
    #[error("{}: cannot write the figure: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    /// A picture with no pixels, or far too many.
    #[error("a picture of {width} × {height} pixels cannot be drawn")]
    BadSize { width: f64, height: f64 },
    /// The drawing library refused.
    #[error("the picture could not be drawn: {reason}")]
    Raster { reason: String },
}

impl DrawError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::UnknownFormat { .. } => "end the name in .svg or .png",
            Self::Write { .. } => "check that the folder exists and can be written to",
            Self::BadSize { .. } => "each side must have 1 to 20000 pixels",
            Self::Raster { .. } => "write an .svg instead, and please report this figure",
        }
    }
}

/// Format of a figure in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Lines and letters, sharp at any size.
    Svg,
    /// Pixels.
    Png,
}

impl Format {
    /// The format that a file name asks for; lets a command refuse a name before it computes.
    pub fn of(path: &Path) -> Result<Self, DrawError> {
        let ending = path.extension().and_then(|ending| ending.to_str());
        match ending.map(str::to_ascii_lowercase).as_deref() {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            _ => Err(DrawError::UnknownFormat { path: path.to_owned() }),
        }
    }
}

/// Writes a figure as SVG or PNG, as the name ends.
pub fn save(figure: &Figure, size: Size, path: &Path) -> Result<(), DrawError> {
    let bytes = match Format::of(path)? {
        Format::Svg => crate::svg::svg(figure, size).into_bytes(),
        Format::Png => crate::png::png(figure, size, PNG_SCALE)?,
    };
    std::fs::write(path, bytes).map_err(|source| DrawError::Write { path: path.to_owned(), source })
}
