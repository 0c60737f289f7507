//! A figure as PNG: its SVG as pixels, with the font that comes with the program.
//!
//! A machine that trains models often has no fonts at all, so letters are outlines of our own
//! ([`crate::font`]): the same figure gives the same pixels everywhere. Scripts that the font lacks
//! appear as empty boxes in PNGs; in SVG files and reports the viewer's fonts draw them.

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};

use crate::chart::Figure;
use crate::layout::Size;
use crate::save::DrawError;
use crate::theme::Theme;

/// Larger pictures are refused: memory grows with the square.
const MOST_PIXELS: f64 = 20_000.0;

/// Draws a figure as PNG, `scale` pixels to each unit of `size` (2 for sharp screens and print).
pub fn png(figure: &Figure, size: Size, scale: f64) -> Result<Vec<u8>, DrawError> {
    let svg = crate::svg::draw(figure, size, Theme::Picture);
    let tree = Tree::from_str(&svg, &Options::default())
        .map_err(|error| DrawError::Raster { reason: error.to_string() })?;
    let (width, height) = (
        (f64::from(tree.size().width()) * scale).round(),
        (f64::from(tree.size().height()) * scale).round(),
    );
    let drawable = |length: f64| (1.0..=MOST_PIXELS).contains(&length);
    if !(drawable(width) && drawable(height)) {
        return Err(DrawError::BadSize { width, height });
    }
    let mut pixels =
        Pixmap::new(width as u32, height as u32).ok_or(DrawError::BadSize { width, height })?;
    let transform = Transform::from_scale(scale as f32, scale as f32);
    resvg::render(&tree, transform, &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| DrawError::Raster { reason: error.to_string() })
}
